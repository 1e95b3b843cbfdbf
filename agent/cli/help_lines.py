"""How the help names values: `TASK` and `--limit N`, where typer would write `TASK <str>` and `<int range>`."""

from typing import Any, get_args


def metavar_of(annotation: Any, names: tuple[str, ...]) -> str | None:
    """Return the placeholder of an option's value; a flag has none."""
    kinds = {annotation, *get_args(annotation)}
    if bool in kinds:
        return None
    if kinds & {int, float}:
        return "N"
    long = next(name for name in names if name.startswith("--"))
    return long.removeprefix("--").upper()


def name_arguments(command: Any) -> None:
    """Let a command's help name each argument once, without its type; optional ones in brackets."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            shown = _shown(parameter)
            parameter.display_type_rich = lambda ctx: None
            parameter.get_usage_pieces = lambda _, shown=shown: [shown]


def _shown(argument: Any) -> str:
    name: str = argument.metavar or argument.name.upper()
    if argument.nargs != 1 and not name.endswith("..."):
        name += "..."
    return name if argument.required else f"[{name}]"
