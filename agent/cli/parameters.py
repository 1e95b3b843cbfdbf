"""How commands declare their arguments and options: as data, which takes no time to load.

A command annotates a parameter as `Annotated[TYPE, Option(...)]`, in the way of typer. `usual_arguments`
reads the usual command line by these declarations; `program` makes typer's own of them.
"""

from typing import Any


class Argument:
    """Declares a value that is known by its place. The details are those of `typer.Argument`."""

    def __init__(self, **details: Any) -> None:
        self.details = details


class Option:
    """Declares a value that is known by its name. The details are those of `typer.Option`."""

    def __init__(self, *names: str, **details: Any) -> None:
        self.names = names
        self.details = details
