"""`agent events`: the append-only event log."""

import time
from typing import TYPE_CHECKING, Annotated, Any

from agent.cli import session
from agent.cli.errors import CommandError
from agent.cli.options import FollowOption, JsonOption, LimitOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient

_POLL_SECONDS = 0.3
_PAGE = 1000


def events(
    task: Annotated[str | None, Argument(metavar="TASK", help="Only events of this task.")] = None,
    after: Annotated[
        str | None, Option("--after", metavar="CURSOR", help="Only events after this cursor.")
    ] = None,
    limit: LimitOption = 100,
    *,
    from_start: Annotated[
        bool, Option("--from-start", help="Begin with the oldest events, not the newest.")
    ] = False,
    follow: FollowOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the newest events; with --follow those from now on."""
    from agent.cli.output import terminal
    from agent.cli.output.follow import watching
    from agent.tasks.read_models import task_documents

    if follow and as_json:
        raise CommandError("--follow and --json exclude each other: --json prints one document")
    if from_start and after is not None:
        raise CommandError("--from-start and --after exclude each other")
    try:
        task_documents.parse_cursor(after)
    except ValueError as error:
        raise CommandError(f"--after: {error}") from None
    with session.client() as client:
        task_id = None if task is None else client.find_task(task)
        is_newest = not from_start and after is None
        if follow:
            if is_newest:
                latest = client.events(None, task_id, 1, is_newest=True)
                after = latest[-1]["cursor"] if latest else None
                terminal.note("events from now on; Ctrl-C stops, --from-start shows the past")
            with watching(task_id, _again(task_id)):
                _follow(client, after, task_id)
        page = client.events(after, task_id, limit + 1, is_newest=is_newest)
        has_more = len(page) > limit
        shown = (page[-limit:] if is_newest else page[:limit]) if has_more else page
        after = shown[-1]["cursor"] if shown else after
        if as_json:
            terminal.print_json({"events": shown, "cursor": after})
            return
        _print(shown, is_one_task=task is not None)
        if has_more and is_newest:
            terminal.note(f"the newest {limit} events; --from-start shows them from the oldest")
        elif has_more:
            terminal.note(f"there are more events: --after {after}")


def _follow(client: "AgentClient", after: str | None, task_id: str | None) -> None:
    """Print events after a cursor, and more as they come."""
    while True:
        page = client.events(after, task_id, _PAGE)
        if page:
            after = page[-1]["cursor"]
            _print(page, is_one_task=task_id is not None)
        if len(page) < _PAGE:
            time.sleep(_POLL_SECONDS)


def _print(page: list[dict[str, Any]], *, is_one_task: bool) -> None:
    from agent.cli.output import terminal
    from agent.cli.output.table import clipped

    width = terminal.width()
    text = "".join(f"{_line(event, is_one_task=is_one_task)}\n" for event in page)
    lines = terminal.harmless(text).splitlines(keepends=True)
    terminal.write(
        "".join(lines if width is None else (f"{clipped(line[:-1], width)}\n" for line in lines))
    )


def _again(task_id: str | None) -> str:
    from agent.cli.output import terminal

    return f"events {terminal.short(task_id)} --follow".replace("  ", " ")


def _line(event: dict[str, Any], *, is_one_task: bool) -> str:
    from agent.cli.output import terminal
    from agent.cli.output.log_text import local_time

    parts = [local_time(event["at"])]
    if not is_one_task:
        parts.append(terminal.short(event["task"]) or "-" * terminal.SHORT_ID)
    parts.append(f"{event['type']:<20}")
    if event.get("step"):
        attempt = event.get("attempt") or 1
        parts.append(event["step"] + (f" (attempt {attempt})" if attempt > 1 else ""))
    if event.get("data"):
        parts.append(terminal.one_line(event["data"], 100))
    return "  ".join(parts)
