"""`agent version`."""

from agent import __version__
from agent.cli.options import JsonOption


def version(*, as_json: JsonOption = False) -> None:
    """Print the version of the program and of what it stands on."""
    import platform

    if as_json:
        from agent.cli.output.terminal import print_json

        print_json({"version": __version__, "python": platform.python_version()})
    else:
        print(f"agent {__version__} (Python {platform.python_version()})")
