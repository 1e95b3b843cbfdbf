"""`agent tasks` and `agent show`: lists tasks, and shows one of them."""

from typing import TYPE_CHECKING, Annotated, Any

from agent.cli import session
from agent.cli.options import JsonOption, LimitOption, TaskArgument
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient

STATUSES = ("pending", "running", "paused", "succeeded", "failed", "canceled")
ACTIVITIES = ("pending", "running", "waiting", "paused", "succeeded", "failed", "canceled")
_COLUMNS = ("task", "workflow", "activity", "created", "took", "input", "remarks")


def tasks(
    statuses: Annotated[
        list[str] | None,
        Option(
            "--status",
            "-s",
            metavar="STATUS",
            help="Only tasks with this status, or several: " + ", ".join(STATUSES) + ".",
        ),
    ] = None,
    activities: Annotated[
        list[str] | None,
        Option(
            "--activity",
            "-a",
            metavar="ACTIVITY",
            help="As --status; running tasks whose steps only wait are `waiting`, not `running`.",
        ),
    ] = None,
    workflow: Annotated[
        str | None, Option("--workflow", "-w", help="Only tasks of this workflow.")
    ] = None,
    trigger: Annotated[
        str | None,
        Option("--trigger", help="Only tasks that this schedule or watcher started."),
    ] = None,
    since: Annotated[
        str | None,
        Option(
            "--since",
            metavar="TIME",
            help="Only tasks created since then: how long ago (2h, 2 days), yesterday, or a date or time.",
        ),
    ] = None,
    search: Annotated[
        str | None,
        Option(
            "--search",
            metavar="TEXT",
            help="Only tasks with this text in their input, or in an output or error.",
        ),
    ] = None,
    before: Annotated[
        str | None,
        Option("--before", metavar="TASK", help="Only tasks older than this one."),
    ] = None,
    limit: LimitOption = 20,
    *,
    waiting: Annotated[
        bool, Option("--waiting", help="Only tasks that wait: --activity waiting.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List tasks, the newest first."""
    from agent.cli.commands import run
    from agent.cli.output import terminal
    from agent.store.read.task_list import TaskFilter

    chosen = [*(activities or ()), *(("waiting",) if waiting else ())]
    _check_states(statuses or [], chosen)
    with session.client() as client:
        wanted = TaskFilter(
            tuple(statuses or ()),
            tuple(chosen),
            workflow,
            None if trigger is None else client.find_trigger(trigger, None),
            instant_of(since),
            search=_searched(search),
        )
        page = client.tasks(wanted, limit, None if before is None else client.find_task(before))
        if not page["tasks"] and workflow is not None:
            _require_workflow(client, workflow)
        if as_json:
            terminal.print_json(page["tasks"])
        elif page["tasks"]:
            is_served = client.worker_role() is not None
            rows = [_row(task, is_served=is_served) for task in page["tasks"]]
            terminal.print_table(_COLUMNS, rows, status_column=2, optional=(5,))
        elif wanted == TaskFilter() and before is None:
            terminal.print_line("no tasks yet: agent run FILE starts one")
        else:
            terminal.print_line("no tasks match")
        _note_rest(page, limit, is_older=before is not None)
        if not as_json:
            _note_waiting(page["tasks"])
            if any(task["status"] == "running" for task in page["tasks"]):
                run.warn_if_no_worker(client)


def _note_waiting(listed: list[dict[str, Any]]) -> None:
    """Print how to answer the questions of the listed tasks."""
    from agent.cli import invocation
    from agent.cli.output import terminal

    waiting = [task["id"] for task in listed if task["waits"]]
    if waiting:
        what = "1 task waits" if len(waiting) == 1 else f"{len(waiting)} tasks wait"
        command = f"{invocation.program()} show {terminal.short(waiting[0])}"
        terminal.note(f"{what} for a person or a signal: {command} prints what to do")


def _check_states(statuses: list[str], activities: list[str]) -> None:
    from agent.cli.errors import CommandError

    for status in statuses:
        if status not in STATUSES:
            hint = "; did you mean --waiting?" if status == "waiting" else ""
            known = ", ".join(STATUSES)
            raise CommandError(f"there is no status {status!r}: use {known}{hint}")
    for activity in activities:
        if activity not in ACTIVITIES:
            known = ", ".join(ACTIVITIES)
            raise CommandError(f"there is no activity {activity!r}: use {known}")


def instant_of(since: str | None) -> int | None:
    """Return the instant that `--since` names."""
    from agent.cli.errors import CommandError
    from agent.core.clock import Clock
    from agent.tasks.read_models.task_list import parse_since

    try:
        return None if since is None else parse_since(since, Clock().now())
    except ValueError as error:
        raise CommandError(f"--since: {error}") from None


def _searched(text: str | None) -> str | None:
    from agent.cli.errors import CommandError
    from agent.tasks.read_models.task_list import MAX_SEARCH

    if text is not None and not 0 < len(text) <= MAX_SEARCH:
        raise CommandError(f"--search takes a text of 1 to {MAX_SEARCH} characters")
    return text


def _require_workflow(client: "AgentClient", name: str) -> None:
    """Raise for a workflow that is neither recorded nor in the workflow directory."""
    import difflib

    from agent.cli.errors import CommandError, Exit, classify

    try:
        client.workflow(name, None)
    except Exception as error:
        if classify(error)[0] is not Exit.REFUSED:
            raise
        names = [str(workflow["name"]) for workflow in client.workflows()]
        if name in names:
            return
        near = difflib.get_close_matches(name, names, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        known = f": there are {', '.join(sorted(names))}" if names and not near else ""
        raise CommandError(f"there is no workflow {name!r}{hint}{known}", Exit.REFUSED) from None


def _note_rest(page: dict[str, Any], limit: int, *, is_older: bool) -> None:
    """Print how many tasks are not shown, and how to see them."""
    from agent.cli.output import terminal

    shown, searched, following = len(page["tasks"]), page["searched"], page["next"]
    if following is None:
        return
    older = f"--before {terminal.short(following)}"
    if searched is not None and shown < limit:
        back_to = terminal.moment(searched["back_to"])
        terminal.note(
            f"searched the newest {searched['tasks']:,} tasks, back to {back_to}; {older} goes on"
        )
    elif page["total"] is None or is_older:
        terminal.note(f"{shown} shown; {older} shows older ones")
    else:
        from agent.tasks.read_models.task_list import MAX_COUNTED

        most = page["total"] >= MAX_COUNTED
        total = f"{page['total']:,}" + (" or more" if most else "")
        everything = "" if most else f"--limit {page['total']} shows all, "
        terminal.note(f"{shown} of {total} tasks; {everything}{older} shows older ones")


def show(
    task: TaskArgument,
    step: Annotated[
        str | None,
        Argument(metavar="STEP", help="Show this step, or an item of it (`lines[3]`)."),
    ] = None,
    attempt: Annotated[
        int | None, Option("--attempt", min=1, help="Only this attempt of the step.")
    ] = None,
    output: Annotated[
        str | None,
        Option(
            "--output",
            "-o",
            metavar="FILE|-",
            help="Write the whole output to a file; - prints it.",
        ),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Show a task, or one of its steps with all its attempts."""
    from agent.cli.commands import run
    from agent.cli.errors import CommandError
    from agent.cli.output import task_view, terminal

    if attempt is not None and step is None:
        raise CommandError("--attempt needs the name of a step: agent show TASK STEP --attempt N")
    with session.client() as client:
        task_id = client.find_task(task)
        if step is not None:
            _show_step(client.step(task_id, step), attempt, output, as_json=as_json)
            return
        document = client.task(task_id)
        if output is not None:
            _write_output(document, document["activity"], output)
            return
        if as_json:
            terminal.print_json(document)
            return
        is_served = client.worker_role() is not None
        document["activity"] = terminal.activity_of(document["activity"], is_served=is_served)
        task_view.print_task(document, client.graph(document["workflow"], document["version"]))
        if document["status"] == "running":
            run.warn_if_no_worker(client)


def _show_step(
    document: dict[str, Any], attempt: int | None, output: str | None, *, as_json: bool
) -> None:
    from agent.cli.errors import CommandError, Exit
    from agent.cli.output import step_view, terminal

    if attempt is not None:
        attempts = [entry for entry in document["attempts"] if entry["attempt"] == attempt]
        if not attempts:
            count = len(document["attempts"])
            raise CommandError(f"there is no attempt {attempt}: the step has {count}", Exit.REFUSED)
        document["attempts"] = attempts
    if output is not None:
        _write_output(document, document["status"], output)
    elif as_json:
        terminal.print_json(document)
    else:
        step_view.print_step(document)


def _write_output(document: dict[str, Any], activity: str, file: str) -> None:
    """Write the output of a task or a step: a text as it is, another value as JSON."""
    from pathlib import Path

    from agent.cli.errors import CommandError, Exit
    from agent.cli.output import terminal

    if document["status"] != "succeeded":
        raise CommandError(f"there is no output: it is {activity}", Exit.REFUSED)
    output = document["output"]
    text = output if isinstance(output, str) else terminal.to_json_text(output)
    if file == "-":
        terminal.write(text if text.endswith("\n") else f"{text}\n")
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None
    terminal.note(f"wrote {len(text.encode()):,} bytes to {file}")


def _row(task: dict[str, Any], *, is_served: bool) -> tuple[str, ...]:
    from agent.cli.output import terminal

    return (
        terminal.short(task["id"]),
        f"{task['workflow']} v{task['version']}",
        terminal.activity_of(task["activity"], is_served=is_served),
        terminal.ago(task["created_at"]),
        terminal.duration(terminal.seconds_between(task["started_at"], task["ended_at"])),
        task["input_preview"],
        terminal.one_line(_remark(task), 200),
    )


def _remark(task: dict[str, Any]) -> str:
    """Return why a task failed or is paused, or what it waits for."""
    from agent.cli.output import terminal
    from agent.core.waits import delay_words
    from agent.tasks.read_models import listed_waits
    from agent.tasks.read_models.task_documents import retried_words

    if task["status"] == "paused":
        return task["pause_reason"] or ""
    if task["error"] or task["retried_as"]:
        message = str((task["error"] or {}).get("message", ""))
        return "; ".join(filter(None, (retried_words(task), message)))
    if task["delay"]:
        return delay_words(task["delay"])
    return listed_waits.words(task["waiting_for"], terminal.moment)
