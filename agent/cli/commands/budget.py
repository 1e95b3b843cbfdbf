"""`agent budget`: shows what tasks have used of models, and raises budgets."""

from typing import TYPE_CHECKING, Annotated, Any

from agent.cli import session
from agent.cli.commands.control import operate
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient
    from agent.tasks.operator.operator import CommandResult


def budget(
    task: Annotated[
        str | None,
        Argument(metavar="TASK", help="A task's id, or the unique start or end of one."),
    ] = None,
    step: Annotated[
        str | None, Option("--step", metavar="STEP", help="Raise the budget of this step.")
    ] = None,
    usd: Annotated[
        float | None, Option("--usd", metavar="X", help="The new total in US dollars.")
    ] = None,
    tokens: Annotated[
        int | None, Option("--tokens", metavar="N", help="The new total of tokens.")
    ] = None,
    time: Annotated[
        str | None,
        Option("--time", metavar="D", help="The new total time since the start, as in 2h."),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Show model usage, or raise a task's budget.

    Without a task it shows the usage of today. A task that its budget paused is resumed.
    """
    from agent.cli.errors import CommandError

    if usd is None and tokens is None and time is None:
        if step is not None:
            raise CommandError("--step needs --usd, --tokens or --time")
        if task is None:
            _show_day(as_json=as_json)
        else:
            _show(task, as_json=as_json)
        return
    session.require_person("raise a budget")
    if task is None:
        raise CommandError(
            "name the task whose budget to raise; [budget] in the configuration sets the budget of a day"
        )
    if (usd is not None and not 0 < usd <= 10**9) or (tokens is not None and tokens < 1):
        raise CommandError("a budget must be greater than zero")
    seconds = None if time is None else _seconds(time)

    def command(client: "AgentClient", task_id: str) -> "CommandResult":
        return client.raise_budget(task_id, step=step, tokens=tokens, usd=usd, seconds=seconds)

    operate(task, command, as_json=as_json)


def _seconds(text: str) -> float:
    from agent.cli.errors import CommandError
    from agent.workflows.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise CommandError(f"--time: {error}") from None


def _show(task: str, *, as_json: bool) -> None:
    from agent.cli.output import terminal
    from agent.cli.output.transcript import used

    with session.client() as client:
        task_id = client.find_task(task)
        document = client.budget(task_id)
    if as_json:
        terminal.print_json(document)
        return
    usage = used({**document, "turns": document["calls"], "tools": 0})
    terminal.print_line(f"task {terminal.short(task_id)}: {usage}")
    if document["budgets"]:
        rows = [_row(budget) for budget in document["budgets"]]
        terminal.print_table(("budget", "tokens", "limit", "usd", "limit"), rows)


def _show_day(*, as_json: bool) -> None:
    from agent.cli.output import terminal

    with session.client() as client:
        day = client.day()
    if as_json:
        terminal.print_json(day)
        return
    terminal.print_line(f"model usage on {day['day']} (UTC), and the limits in [budget]:")
    rows = [
        ("tokens", str(day["tokens"]), _of(day["tokens_limit"], "{}")),
        ("usd", f"{day['usd']:.6f}", _of(day["usd_limit"], "{:.6f}")),
        ("seconds", f"{day['seconds']:.1f}", _of(day["seconds_limit"], "{:.1f}")),
    ]
    terminal.print_table(("", "used", "limit"), rows)


def _of(limit: float | None, form: str) -> str:
    return "-" if limit is None else form.format(limit)


def _row(budget: dict[str, Any]) -> tuple[str, ...]:
    tokens, usd = budget["tokens_limit"], budget["usd_limit"]
    return (
        budget["step"] or "task",
        str(budget["tokens"]),
        _of(tokens, "{}"),
        f"{budget['usd']:.6f}",
        _of(usd, "{:.6f}"),
    )
