"""A small MCP server for tests: over standard input and output, or `http PORT` on loopback.

What its tools did is appended to the file that the environment names, so that a test can count.
"""

import base64
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Image, Resolve
from pydantic import BaseModel

server = MCPServer("tests")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture of one pixel."""


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


class Size(BaseModel):
    """What a person is asked for."""

    size: int


async def ask_size(color: str) -> Elicit[Size]:
    """Ask for a size before the tool runs."""
    return Elicit(f"Which size, in {color}?", Size)


@server.tool()
async def order(color: str, size: Annotated[Size, Resolve(ask_size)]) -> str:
    """Order a coat; a person gives its size."""
    _did(f"order {color} {size.size}")
    return f"ordered {color} in {size.size}"


@server.tool()
async def paint(context: Context[Any, Any]) -> list[Image | str]:
    """Paint a picture, and tell how far it is."""
    _did("paint")
    await context.report_progress(1, 2, "half")
    await context.report_progress(2, 2, "done")
    return ["here it is", Image(data=PIXEL, format="png")]


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
