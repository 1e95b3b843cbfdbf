"""`agent queue`: the queues of external workers, dead letters, and a worker that runs a command."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from agent.cli import session
from agent.cli.commands import queue_work
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient

_ID_CHARS: Final = 36

app = typer.Typer(rich_markup_mode=None, help="List queues, requeue dead letters, work on steps.")

QueueOption = Annotated[
    str | None, Option("--queue", "-q", metavar="QUEUE", help="Only of this queue.")
]
ErrorOption = Annotated[
    str | None,
    Option("--error", metavar="CODE", help="Only with this error, as heartbeat_timeout."),
]
LimitOption = Annotated[int, Option("--limit", "-n", min=1, max=10_000, help="At most this many.")]


@app.callback(invoke_without_command=True)
def _by_default(context: typer.Context, *, as_json: JsonOption = False) -> None:
    if context.invoked_subcommand is None:
        list_queues(as_json=as_json)


@app.command("list")
def list_queues(*, as_json: JsonOption = False) -> None:
    """List queues: what waits, who works, and dead letters."""
    from agent.cli.output import terminal

    with session.client() as client:
        queues = client.queues()
    if as_json:
        terminal.print_json(queues)
    elif not queues:
        terminal.print_line("no queues: a step of kind `worker` names one")
    else:
        terminal.print_table(
            ("queue", "waiting", "oldest", "leased", "running", "asked", "dead", "workers"),
            [_queue_row(queue) for queue in queues],
        )


@app.command("dead")
def dead(
    queue: QueueOption = None,
    error: ErrorOption = None,
    limit: LimitOption = 50,
    *,
    is_count: Annotated[
        bool, Option("--count", help="Count them by queue and error, and list none.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List dead letters: steps that failed for good.

    All their attempts are used up. `agent queue requeue` puts them back.
    """
    from agent.cli.output import terminal

    with session.client() as client:
        letters = client.dead_letters(queue, error, 10_000 if is_count else limit)
    if is_count:
        _print_counts(letters, as_json=as_json)
    elif as_json:
        terminal.print_json(letters)
    elif not letters:
        terminal.print_line("no dead letters")
    else:
        _print_letters(letters)


@app.command("requeue")
def requeue(
    ids: Annotated[
        list[str] | None,
        Argument(metavar="ID...", help="Dead letters, by the start or end of their ids."),
    ] = None,
    queue: QueueOption = None,
    error: ErrorOption = None,
    not_before: Annotated[
        str | None,
        Option("--not-before", metavar="TIME", help="An instant, or a duration as 2h."),
    ] = None,
    reason: Annotated[
        str | None, Option("--reason", metavar="TEXT", help="Recorded with the new task.")
    ] = None,
    *,
    is_all: Annotated[bool, Option("--all", help="Every dead letter of the filters.")] = False,
    is_dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would be requeued, and change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Put dead letters back, with a fresh count of attempts.

    Each becomes a retry of its task, which keeps what succeeded. Name them, or use --all, alone or with
    --queue and --error.
    """
    from agent.cli.errors import CommandError
    from agent.cli.output import terminal

    if bool(ids) == is_all:
        raise CommandError("name dead letters by their ids, or use --all; --dry-run shows which")
    with session.client() as client:
        letters = _chosen(client, ids or [], queue, error, must_be_listed=is_dry_run)
        if not is_dry_run:
            letters = [
                {**letter, "requeued_as": client.requeue(letter["id"], not_before, reason).task_id}
                for letter in letters
            ]
    if as_json:
        terminal.print_json(letters)
    elif not letters:
        terminal.print_line("no dead letters")
    elif is_dry_run:
        _print_letters(letters)
    else:
        for letter in letters:
            new = f"as task {terminal.short(letter['requeued_as'])}"
            if "task" in letter:
                of = terminal.short(letter["task"])
                terminal.print_line(f"requeued {letter['step']} of {of} {new}")
            else:
                terminal.print_line(f"already requeued {new}")


app.command("work", context_settings={"ignore_unknown_options": False})(queue_work.work)


def _chosen(
    client: "AgentClient",
    ids: list[str],
    queue: str | None,
    error: str | None,
    *,
    must_be_listed: bool,
) -> list[dict[str, Any]]:
    """Return dead letters: those that were named, or all that the filters select."""
    from agent.tasks.read_models.task_documents import find_one

    letters = {letter["id"]: letter for letter in client.dead_letters(queue, error, 10_000)}
    if not ids:
        return list(letters.values())

    def like(text: str) -> list[str]:
        return [
            work_id for work_id in letters if work_id.startswith(text) or work_id.endswith(text)
        ][:5]

    # A whole id may be of one that was requeued: the agent names the task that it became.
    whole = {
        text: {"id": text}
        for text in ids
        if len(text) == _ID_CHARS and text not in letters and not must_be_listed
    }
    named = [text if text in whole else find_one(text, "dead letter", like) for text in ids]
    known = {**letters, **whole}
    return [known[work_id] for work_id in dict.fromkeys(named)]


def _queue_row(queue: dict[str, Any]) -> tuple[str, ...]:
    from agent.cli.output import terminal

    numbers = [str(queue[name]) for name in ("leased", "running", "asked", "dead")]
    claimants = terminal.one_line(", ".join(queue["claimants"]), 60)
    return (
        queue["queue"],
        str(queue["queued"]),
        terminal.ago(queue["oldest_at"]),
        *numbers,
        claimants,
    )


def _print_letters(letters: list[dict[str, Any]]) -> None:
    from agent.cli.output import terminal

    terminal.print_table(
        ("id", "queue", "task", "step", "attempts", "failed", "error"),
        [
            (
                terminal.short(letter["id"]),
                letter["queue"],
                f"{letter['workflow']} {terminal.short(letter['task'])}",
                _step_name(letter),
                str(letter["attempts"]),
                terminal.ago(letter["failed_at"]),
                terminal.one_line(f"{letter['error']['code']}: {letter['error']['message']}", 80),
            )
            for letter in letters
        ],
    )


def _step_name(letter: dict[str, Any]) -> str:
    index = letter["parallel_index"]
    name: str = letter["step"]
    return name if index is None or index < 0 else f"{name}[{index}]"


def _print_counts(letters: list[dict[str, Any]], *, as_json: bool) -> None:
    from agent.cli.output import terminal

    counts = Counter((letter["queue"], letter["error"]["code"]) for letter in letters)
    rows = [
        {"queue": queue, "error": code, "count": count}
        for (queue, code), count in counts.most_common()
    ]
    if as_json:
        terminal.print_json(rows)
    elif not rows:
        terminal.print_line("no dead letters")
    else:
        terminal.print_table(
            ("queue", "error", "count"),
            [(row["queue"], row["error"], str(row["count"])) for row in rows],
        )
