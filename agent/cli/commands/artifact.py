"""`agent artifact`: prints a large value as it was stored."""

import sys
from typing import Annotated

from agent.cli import session
from agent.cli.parameters import Argument

_LEAST_CHARACTERS = 6


def artifact(
    name: Annotated[str, Argument(metavar="HASH", help="The hash, or the start of it.")],
) -> None:
    """Print a large value by its hash.

    `agent show` prints whole outputs by itself.
    """
    from agent.cli.errors import CommandError

    name = name.strip().lower()
    if len(name) < _LEAST_CHARACTERS or not set(name) <= set("0123456789abcdef"):
        raise CommandError(f"give a hash, or at least {_LEAST_CHARACTERS} characters of it")
    with session.client() as client:
        content = client.artifact(name)
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.write(b"\n")
