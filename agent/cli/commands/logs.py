"""`agent logs`: the output that a task's steps wrote."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import session
from agent.cli.errors import CommandError, Exit
from agent.cli.options import FollowOption, JsonOption, TaskArgument

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient

_PAGE = 1000
_LOOK_SECONDS = 0.3


def logs(
    task: TaskArgument,
    step: Annotated[
        str | None, typer.Argument(metavar="STEP", help="Only the output of this step.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Only the output of this attempt.")
    ] = None,
    *,
    follow: FollowOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the output that a task's steps wrote."""
    from agent.cli.output import terminal

    if follow and as_json:
        raise CommandError("--follow and --json exclude each other: --json prints one document")
    with session.client() as client:
        task_id = client.find_task(task)
        _check_step(client, task_id, step)
        after = 0
        gathered: list[dict[str, Any]] = []
        while True:
            page = client.logs(task_id, step, attempt, after, _PAGE)
            after = page[-1]["id"] if page else after
            if as_json:
                gathered += page
            else:
                _print(page, is_one_step=step is not None)
            if len(page) < _PAGE:
                if not follow or _has_ended(client, task_id):
                    break
                time.sleep(_LOOK_SECONDS)
    if as_json:
        terminal.print_json(gathered)


def _print(page: list[dict[str, Any]], *, is_one_step: bool) -> None:
    from agent.cli.output import terminal

    for piece in page:
        lead = "" if is_one_step else f"{piece['step']} | "
        style = "dim" if piece["stream"] == "stderr" else None
        for line in piece["text"].rstrip("\n").split("\n"):
            terminal.print_line(f"{lead}{line}", style)


def _check_step(client: "AgentClient", task_id: str, step: str | None) -> None:
    """Raise for a step that the task does not have: its output would look empty."""
    if step is None:
        return
    document = client.task(task_id)
    graph = client.graph(document["workflow"], document["version"])
    if step.partition("[")[0] not in graph.index_of:
        names = ", ".join(graph.index_of)
        raise CommandError(f"the task has no step {step!r}; its steps are {names}", Exit.REFUSED)


def _has_ended(client: "AgentClient", task_id: str) -> bool:
    from agent.cli.output.follow import ENDED

    return client.task(task_id)["status"] in ENDED
