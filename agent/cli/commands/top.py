"""`agent top`: a live view of what the agent does."""

import time
from typing import TYPE_CHECKING, Annotated

from agent.cli import session
from agent.cli.options import JsonOption
from agent.cli.parameters import Option

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient


def top(
    *,
    interval: Annotated[
        float,
        Option(
            "--interval", "-i", metavar="SECONDS", min=0.1, max=3600, help="Time between updates."
        ),
    ] = 2.0,
    once: Annotated[bool, Option("--once", help="Print it once and end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Watch workers, slots, queue, slowest steps and spend.

    Ctrl-C ends it. Without a terminal, or with --once, it is printed once.
    """
    from agent.cli.output import terminal

    with session.client() as client:
        if as_json:
            terminal.print_json(client.load())
        elif once or not terminal.is_terminal():
            _print_once(client)
        else:
            _follow(client, interval)


def _print_once(client: "AgentClient") -> None:
    from agent.cli.output import terminal, top_view

    for line in top_view.lines(top_view.Sample(client.load(), time.monotonic()), None):
        terminal.print_line(line)


def _follow(client: "AgentClient", interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from agent.cli.output import terminal, top_view

    before = None
    console = terminal.console()
    with Live(console=console, auto_refresh=False, screen=True) as screen:
        try:
            while True:
                now = top_view.Sample(client.load(), time.monotonic())
                lines = top_view.lines(now, before, console.size.height)
                text = Text("\n".join(lines[: console.size.height]), no_wrap=True, overflow="crop")
                screen.update(text, refresh=True)
                before = now
                time.sleep(interval)
        except KeyboardInterrupt:
            return
