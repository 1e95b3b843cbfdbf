"""The protocol over standard input and output, for a client that starts `agent mcp` as its own program."""

from collections.abc import Mapping
from typing import Any

from agent.mcp.api_calls import Api


async def serve(api: Api, description: Mapping[str, Any]) -> None:
    """Serve one client until it closes standard input; nothing else is written to standard output."""
    from mcp.server.stdio import stdio_server

    from agent.mcp.change_watch import ChangeWatch
    from agent.mcp.protocol_server import ProtocolServer

    protocol = ProtocolServer(description, lambda _: api, ChangeWatch(api))
    try:
        async with stdio_server() as (reading, writing):
            options = protocol.server.create_initialization_options()
            await protocol.server.run(reading, writing, options)
    finally:
        protocol.close()
