"""One run of the program: its global options, how it was called, and which user called it."""

import os
import sys
from functools import cache
from pathlib import Path

config_file: str | None = None
server: str | None = None
overrides: tuple[str, ...] = ()
"""`KEY=VALUE` of each `-c`."""
is_verbose = False


def begin(
    config: str | None, url: str | None, settings: list[str] | None = None, *, verbose: bool = False
) -> None:
    """Store the values of the global options."""
    global config_file, server, overrides, is_verbose  # noqa: PLW0603  (one process runs one command)
    config_file = config
    server = url
    overrides = tuple(settings or ())
    is_verbose = verbose


def server_url() -> str | None:
    """Return the address of a remote agent; None for the agent of this machine."""
    return server or os.environ.get("AGENT_SERVER") or None


def program() -> str:
    """Return how to call this program for the same agent, for commands that messages suggest."""
    return _name() + (f" --server {server}" if server else "")


@cache
def user() -> str:
    """Return the name of the user who runs this program."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # An account without a name, as in some containers.
        return f"user {os.getuid()}"


@cache
def _name() -> str:
    # The program may not be on the PATH.
    own = Path(sys.argv[0])
    # As `shutil.which` does it, which takes long to load.
    places = [Path(directory, "agent") for directory in os.get_exec_path()]
    on_path = next((place for place in places if os.access(place, os.X_OK)), None)
    if own.name != "agent" or (on_path is not None and on_path.absolute() == own.absolute()):
        return "agent"
    try:
        return str(own.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(own)
