"""A small MCP server for tests: over standard input and output, or `http PORT` on loopback.

What its tools did is appended to the file that the environment names, so that a test can count.
"""

import os
import sys
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("tests")


def _did(what: str) -> None:
    with Path(os.environ["DID"]).open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


@server.tool()
def add(one: int, other: int) -> int:
    """Add two numbers."""
    _did("add")
    return one + other


@server.tool()
def show(name: str) -> str:
    """Show a variable of the environment."""
    _did("show")
    return os.environ.get(name, "nothing")


@server.tool()
def fail() -> str:
    """Do not work."""
    _did("fail")
    raise ValueError("it does not work")


if __name__ == "__main__":
    sys.stderr.write("the server complains\n")
    sys.stderr.flush()
    if len(sys.argv) > 1:
        import uvicorn

        uvicorn.run(
            server.streamable_http_app(),
            host="127.0.0.1",
            port=int(sys.argv[2]),
            log_level="error",
        )
    else:
        server.run("stdio")
