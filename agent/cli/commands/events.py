"""`agent events`: the append-only event log."""

import time
from typing import Annotated, Any

import typer

from agent.cli import session
from agent.cli.errors import CommandError
from agent.cli.options import FollowOption, JsonOption, LimitOption

_LOOK_SECONDS = 0.3


def events(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Only events of this task.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="Only events after this cursor.")
    ] = None,
    limit: LimitOption = 100,
    *,
    follow: FollowOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print events, the oldest first."""
    from agent.cli.output import terminal
    from agent.tasks.read_models import task_documents

    if follow and as_json:
        raise CommandError("--follow and --json exclude each other: --json prints one document")
    try:
        task_documents.parse_cursor(after)
    except ValueError as error:
        raise CommandError(f"--after: {error}") from None
    with session.client() as client:
        task_id = None if task is None else client.find_task(task)
        while True:
            page = client.events(after, task_id, limit)
            after = page[-1]["cursor"] if page else after
            if as_json:
                terminal.print_json({"events": page, "cursor": after})
                return
            for event in page:
                terminal.print_line(_line(event, is_one_task=task is not None))
            if len(page) < limit:
                if not follow:
                    return
                time.sleep(_LOOK_SECONDS)
            elif not follow:
                terminal.note(f"there are more events: --after {after}")
                return


def _line(event: dict[str, Any], *, is_one_task: bool) -> str:
    from agent.cli.output import terminal

    parts = [event["at"]]
    if not is_one_task:
        parts.append(terminal.short(event["task"]) or "-" * terminal.SHORT_ID)
    parts.append(f"{event['type']:<20}")
    if event.get("step"):
        attempt = event.get("attempt") or 1
        parts.append(event["step"] + (f" (attempt {attempt})" if attempt > 1 else ""))
    if event.get("data"):
        parts.append(terminal.one_line(event["data"], 100))
    return "  ".join(parts)
