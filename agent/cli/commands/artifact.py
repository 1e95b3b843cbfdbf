"""`agent artifact`: a large value, as it was given."""

import sys
from typing import Annotated

import typer

from agent.cli import session

_LEAST_CHARACTERS = 6


def artifact(
    name: Annotated[str, typer.Argument(metavar="HASH", help="Its hash, or the beginning of it.")],
) -> None:
    """Print a large value that is kept under its hash.

    `agent show` prints outputs whole without it.
    """
    from agent.cli.errors import CommandError

    name = name.strip().lower()
    if len(name) < _LEAST_CHARACTERS or not set(name) <= set("0123456789abcdef"):
        raise CommandError(f"give a hash, or at least {_LEAST_CHARACTERS} characters of it")
    with session.client() as client:
        content = client.artifact(name)
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.write(b"\n")
