"""Large values on a terminal: as much as fits on a screen, and how to get all of it."""

from typing import Any, Final

from agent.cli import invocation
from agent.cli.output import table, terminal

_ROWS_BESIDE: Final = 12
"""Rows of a screen that a value leaves free for the lines around it."""
_ROWS_AT_LEAST: Final = 10


def print_value(value: Any, command: str) -> None:
    """Print a value; where a terminal has no room for it, name the command that has it all."""
    text = value if isinstance(value, str) else terminal.to_json_text(value)
    shown = fitting(text, *terminal.size()) if terminal.is_terminal() else text
    terminal.print_line(shown)
    if len(shown) < len(text):
        hidden = f"{len(text) - len(shown) + 1:,} more characters"
        program = invocation.program()
        terminal.print_line(f"… {hidden}: {program} {command} --output FILE (or --json)", "dim")


def fitting(text: str, columns: int, rows: int) -> str:
    """Return the beginning of a text that fits on a screen; its last line may be cut."""
    room = max(rows - _ROWS_BESIDE, _ROWS_AT_LEAST)
    kept: list[str] = []
    for line in text.split("\n"):
        needed = max(1, -(-table.cell_width(line) // columns))
        if needed > room:
            if room:
                kept.append(table.clipped(line, room * columns))
            return "\n".join(kept)
        room -= needed
        kept.append(line)
    return text
