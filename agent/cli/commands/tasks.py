"""`agent tasks` and `agent show`: lists tasks, and shows one of them."""

from typing import Annotated, Any

import typer

from agent.cli import session
from agent.cli.options import JsonOption, LimitOption, TaskArgument

STATUSES = ("pending", "running", "paused", "succeeded", "failed", "canceled")
ACTIVITIES = ("pending", "running", "waiting", "paused", "succeeded", "failed", "canceled")


def tasks(
    status: Annotated[
        str | None,
        typer.Option(
            "--status", "-s", help="Only tasks with this status: " + ", ".join(STATUSES) + "."
        ),
    ] = None,
    activity: Annotated[
        str | None,
        typer.Option(
            "--activity",
            "-a",
            help="As --status; running tasks whose steps only wait are `waiting`, not `running`.",
        ),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", help="Only tasks of this workflow.")
    ] = None,
    limit: LimitOption = 20,
    *,
    as_json: JsonOption = False,
) -> None:
    """List tasks, the newest first."""
    from agent.cli.commands import run
    from agent.cli.errors import CommandError
    from agent.cli.output import terminal

    if status is not None and status not in STATUSES:
        hint = "; did you mean --activity waiting?" if status == "waiting" else ""
        known = ", ".join(STATUSES)
        raise CommandError(f"there is no status {status!r}: use {known}{hint}")
    if activity is not None and activity not in ACTIVITIES:
        known = ", ".join(ACTIVITIES)
        raise CommandError(f"there is no activity {activity!r}: use {known}")
    with session.client() as client:
        listed = client.tasks(status, activity, workflow, limit)
        if as_json:
            terminal.print_json(listed)
            return
        if not listed:
            how = " match" if status or activity or workflow else " yet: agent run FILE starts one"
            terminal.print_line("no tasks" + how)
            return
        terminal.print_table(
            ("task", "workflow", "activity", "created", "took", "remarks"),
            [_row(task) for task in listed],
            status_column=2,
        )
        if any(task["status"] == "running" for task in listed):
            run.warn_if_no_worker(client)


def show(
    task: TaskArgument,
    step: Annotated[
        str | None, typer.Argument(metavar="STEP", help="Show the calls of this step.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Show a task, or all calls of one of its steps."""
    from agent.cli.commands import run
    from agent.cli.output import task_view, terminal, transcript

    with session.client() as client:
        task_id = client.find_task(task)
        if step is not None:
            calls = client.transcript(task_id, step)
            (terminal.print_json if as_json else transcript.print_transcript)(calls)
            return
        document = client.task(task_id)
        if as_json:
            terminal.print_json(document)
            return
        task_view.print_task(document, client.graph(document["workflow"], document["version"]))
        if document["status"] == "running":
            run.warn_if_no_worker(client)


def _row(task: dict[str, Any]) -> tuple[str, ...]:
    from agent.cli.output import terminal

    remark = (task["error"] or {}).get("message", "")
    if task["status"] == "paused":
        remark = task["pause_reason"] or ""
    if not remark and task.get("delay"):
        remark = f"waits for the artifact store {task['delay'].get('store')}"
    if not remark and task["waits"]:
        signal = task.get("signal")
        what = "a person" if signal is None else f"the signal {signal!r}"
        remark = f"waits for {what}: agent show {terminal.short(task['id'])}"
    return (
        terminal.short(task["id"]),
        f"{task['workflow']} v{task['version']}",
        task["activity"],
        terminal.ago(task["created_at"]),
        terminal.duration(terminal.seconds_between(task["started_at"], task["ended_at"])),
        terminal.one_line(remark, 60),
    )
