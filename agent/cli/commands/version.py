"""`agent version`."""

from agent import __version__
from agent.cli import front_page
from agent.cli.options import JsonOption


def version(*, as_json: JsonOption = False) -> None:
    """Print the versions of the program and of Python."""
    if as_json:
        from agent.cli.output.terminal import print_json

        print_json({"version": __version__, "python": front_page.python_version()})
    else:
        print(front_page.version_line())
