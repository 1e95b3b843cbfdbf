"""`agent logs`: the output that a task's steps wrote."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from agent.cli import session
from agent.cli.errors import CommandError, Exit
from agent.cli.options import FollowOption, JsonOption, TaskArgument
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient

_PAGE = 10_000
_POLL_SECONDS = 0.3


def logs(
    task: TaskArgument,
    step: Annotated[
        str | None, Argument(metavar="STEP", help="Only the output of this step.")
    ] = None,
    attempt: Annotated[
        int | None, Option("--attempt", min=1, help="Only the output of this attempt.")
    ] = None,
    tail: Annotated[
        int | None,
        Option("--tail", "-n", min=0, metavar="N", help="Only the last N lines."),
    ] = None,
    *,
    timestamps: Annotated[
        bool, Option("--timestamps", "-t", help="Begin each line with its local time.")
    ] = False,
    follow: FollowOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the output that a task's steps wrote."""
    from agent.cli.output import log_text, terminal
    from agent.cli.output.follow import watching

    if follow and as_json:
        raise CommandError("--follow and --json exclude each other: --json prints one document")
    with session.client() as client:
        task_id = client.find_task(task)
        _check_step(client, task_id, step)
        reader = _Reader(client, task_id, step, attempt)
        gathered = [] if tail is None else reader.last_lines(tail)
        if as_json:
            terminal.print_json(gathered if tail is not None else [*_chain(reader.pages())])
            return

        def show(page: list[dict[str, Any]]) -> None:
            if page:
                options = {"has_steps": step is None, "has_times": timestamps}
                terminal.write(log_text.text_of(page, **options))

        show(gathered)
        if not follow:
            for page in reader.pages() if tail is None else ():
                show(page)
            _print_errors(client, task_id, step, attempt)
            return
        with watching(task_id, f"logs {terminal.short(task_id)} --follow"):
            while True:
                # Asked before the lines are read: the last read must follow the task's end.
                has_ended = _has_ended(client, task_id)
                for page in reader.pages():
                    show(page)
                if has_ended:
                    _print_errors(client, task_id, step, attempt)
                    return
                time.sleep(_POLL_SECONDS)


class _Reader:
    """Reads the log of a task, each piece once."""

    def __init__(
        self, client: "AgentClient", task_id: str, step: str | None, attempt: int | None
    ) -> None:
        self._client = client
        self._of = (task_id, step, attempt)
        self._after = 0

    def pages(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the lines written since the last page, up to now."""
        while True:
            page = self._client.logs(*self._of, _PAGE, after=self._after)
            if page:
                self._after = page[-1]["id"]
                yield page
            if len(page) < _PAGE:
                return

    def last_lines(self, count: int) -> list[dict[str, Any]]:
        """Return the last lines; `pages` continues behind them."""
        from agent.cli.output import log_text

        pieces: list[dict[str, Any]] = []
        before = 2**63 - 1
        while True:
            # A piece has one line at least.
            size = min(_PAGE, max(count, 1))
            page = self._client.logs(*self._of, size, before=before)
            pieces = [*page, *pieces]
            if len(page) < size or log_text.line_count(pieces) >= count:
                break
            before = page[0]["id"]
        self._after = pieces[-1]["id"] if pieces else 0
        return log_text.last_lines(pieces, count) if count else []


def _chain(pages: Iterator[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    for page in pages:
        yield from page


def _check_step(client: "AgentClient", task_id: str, step: str | None) -> None:
    """Raise for a step that the task does not have: its output would look empty."""
    if step is None:
        return
    document = client.task(task_id)
    graph = client.graph(document["workflow"], document["version"])
    if step.partition("[")[0] not in graph.index_of:
        names = ", ".join(graph.index_of)
        raise CommandError(f"the task has no step {step!r}; its steps are {names}", Exit.REFUSED)


def _print_errors(
    client: "AgentClient", task_id: str, only: str | None, attempt: int | None
) -> None:
    """Print to standard error why steps failed: their output is only what they wrote."""
    from agent.cli.output import terminal

    for step in client.task(task_id)["steps"]:
        is_asked = only in (None, step["name"], step["name"].partition("[")[0])
        is_last = attempt in (None, step["attempt"])
        if is_asked and is_last and step["status"] == "failed" and step["error"]:
            terminal.note(f"{step['name']} failed: {step['error']['message']}")


def _has_ended(client: "AgentClient", task_id: str) -> bool:
    from agent.cli.output.follow import ENDED

    return client.task(task_id)["status"] in ENDED
