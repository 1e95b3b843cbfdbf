"""`agent run`: starts a task, and runs it in this process where no agent does.

A running agent gets the task through the database. Without one this process takes the agent's lock
and runs the task until it ends or waits for a person.
"""

from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from agent.cli import invocation, session
from agent.cli.errors import CommandError
from agent.cli.options import InputJsonOption, InputOption, JsonOption, NoInputOption, WaitOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient
    from agent.cli.output.inline_answers import InlineAnswers

PRIORITIES = ("high", "normal", "low")


def run(
    workflow: Annotated[
        str, Argument(metavar="FILE|NAME", help="A workflow file, or the name of a workflow.")
    ],
    pairs: InputOption = None,
    input_json: InputJsonOption = None,
    priority: Annotated[str | None, Option("--priority", help="high, normal or low.")] = None,
    *,
    wait: WaitOption = False,
    detach: Annotated[bool, Option("--detach", help="Start the task and return at once.")] = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start a workflow.

    A running agent runs the task; without one, this command runs it to its end. On a terminal, its
    questions are asked here.
    """
    from agent.cli import inputs
    from agent.cli.output import task_view, terminal

    if wait and detach:
        raise CommandError("--wait and --detach exclude each other")
    if priority is not None and priority not in PRIORITIES:
        raise CommandError(f"there is no priority {priority!r}: use high, normal or low")
    values, texts = inputs.parse_inputs(pairs or [], input_json)
    with session.client() as client:
        task_id, name = client.start(workflow, values, texts, priority)
        worker_role = client.worker_role()
        if detach or (not wait and worker_role == "daemon"):
            if as_json:
                terminal.print_json(client.task(task_id))
            else:
                notice = None if worker_role else _no_agent("runs it")
                task_view.print_started(task_id, name, notice)
            return
        if not as_json:
            terminal.note(f"task {terminal.short(task_id)} of {name}")
        follow_to_end(client, task_id, as_json=as_json, no_input=no_input)


def warn_if_no_worker(client: "AgentClient") -> None:
    """Warn that unfinished tasks do not run."""
    from agent.cli.output import terminal

    if client.worker_role() is None:
        terminal.note(_no_agent("resumes unfinished tasks"))


def _no_agent(does: str) -> str:
    from agent.cli import other_agents

    return other_agents.no_agent(session.any_settings(), does)


def follow_to_end(
    client: "AgentClient", task_id: str, *, as_json: bool, no_input: bool = False
) -> NoReturn:
    """Follow a task until it ends or waits for a person; print the result and exit with its code.

    On a terminal the person is asked right there, unless `no_input` says otherwise.
    """
    from agent.cli.output import follow, line_input, task_view, terminal
    from agent.cli.output.inline_answers import InlineAnswers

    asks_here = not (as_json or no_input) and line_input.is_possible()
    answers = InlineAnswers(client) if asks_here else None
    try:
        document = _follow(client, task_id, answers, is_quiet=as_json)
    except KeyboardInterrupt:
        _note_interruption(client, task_id, answers)
        raise
    if as_json:
        terminal.print_json(document)
    else:
        task_view.print_ending(document)
    raise SystemExit(int(follow.exit_code(document)))


def _note_interruption(
    client: "AgentClient", task_id: str, answers: "InlineAnswers | None"
) -> None:
    from agent.cli.output import follow, question_view, terminal

    if answers is not None and answers.asked is not None:
        command = question_view.how_to_answer(answers.asked)
        terminal.note(f"\nthe question stays open; answer it later:\n  {command}")
        return
    short = terminal.short(task_id)
    if client.worker_role() is not None:
        follow.note_unwatched(task_id, f"watch {short}")
        return
    terminal.note(
        f"\nstopped: this command ran task {short}; no agent is running; to continue it:\n"
        f"  {invocation.program()} up"
    )


def _follow(
    client: "AgentClient", task_id: str, answers: "InlineAnswers | None", *, is_quiet: bool
) -> dict[str, Any]:
    """Follow a task; where the process that runs it ends, this one takes over."""
    from agent.cli.client.base import WorkerGoneError
    from agent.cli.output import follow

    while True:
        try:
            with client.running_tasks() as check:
                while True:
                    document = follow.follow(client, task_id, is_quiet=is_quiet, check=check)
                    if answers is None or not answers.ask_next(document, check):
                        return document
        except WorkerGoneError:
            continue
