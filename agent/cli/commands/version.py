"""`agent version`."""

from agent import __version__
from agent.cli.options import JsonOption


def version(*, as_json: JsonOption = False) -> None:
    """Print the versions of the program and of Python."""
    import platform

    if as_json:
        from agent.cli.output.terminal import print_json

        print_json({"version": __version__, "python": platform.python_version()})
    else:
        print(f"agent {__version__} (Python {platform.python_version()})")
