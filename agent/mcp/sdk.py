"""The package `mcp`: optional, and slow to import."""

import logging
from importlib import import_module
from typing import Final

MISSING: Final = "the MCP server needs a library: `python -m pip install mcp`"


class MissingSdkError(Exception):
    """The package is not installed; the message names it."""

    def __init__(self) -> None:
        super().__init__(MISSING)


def load() -> None:
    """Import the package; raise `MissingSdkError` where it is not installed."""
    try:
        import_module("mcp.server")
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        raise MissingSdkError from None
    # It logs every message, which may hold a secret, and every session.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
