"""Commands on one task: pause, resume, cancel, retry, fork, resolve, signal."""

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from agent.cli import session
from agent.cli.options import (
    InputJsonOption,
    InputOption,
    JsonOption,
    NoInputOption,
    TaskArgument,
    WaitOption,
)
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.approvals.answering import Verdict
    from agent.cli.client.base import AgentClient
    from agent.tasks.operator.operator import CommandResult

StepArgument = Annotated[str, Argument(metavar="STEP", help="The step's name.")]


def pause(
    task: TaskArgument,
    reason: Annotated[str | None, Option("--reason", help="Shown with the task.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Pause a task: no new step starts.

    Running steps finish, or stop at their next checkpoint.
    """

    def command(client: "AgentClient", task_id: str) -> "CommandResult":
        return client.pause(task_id, reason)

    operate(task, command, needs_worker=False, as_json=as_json)


def resume(task: TaskArgument, *, as_json: JsonOption = False) -> None:
    """Resume a paused task."""
    operate(task, lambda client, task_id: client.resume(task_id), as_json=as_json)


def cancel(task: TaskArgument, *, as_json: JsonOption = False) -> None:
    """Cancel a task and stop its running steps."""
    operate(
        task, lambda client, task_id: client.cancel(task_id), needs_worker=False, as_json=as_json
    )


LatestOption = Annotated[
    bool,
    Option(
        "--latest",
        help="Go on with the newest version of the workflow, where the kept steps fit it.",
    ),
]


def retry(
    task: TaskArgument,
    pairs: Annotated[
        list[str] | None,
        Option("--input", "-i", metavar="KEY=VALUE", help="Names the fork that has another input."),
    ] = None,
    *,
    latest: LatestOption = False,
    wait: WaitOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Retry what did not succeed, in a new task.

    The new task keeps the results of the steps that succeeded. It has the version of the old one, or
    with --latest the newest. A question is asked again where it reads differently, or where a step that
    acts on its answer has changed.
    """
    if pairs:
        raise _other_input(task, pairs, latest=latest, wait=wait)

    def command(client: "AgentClient", task_id: str) -> "CommandResult":
        return client.retry(task_id, is_latest=latest)

    operate(task, command, wait=wait, no_input=no_input, as_json=as_json)


def _other_input(task: str, pairs: list[str], *, latest: bool, wait: bool) -> Exception:
    """Return the refusal of a retry with another input, with the command that does it."""
    from agent.cli import invocation
    from agent.cli.errors import CommandError

    flags = [flag for flag, is_given in (("--latest", latest), ("--wait", wait)) if is_given]
    words = ["fork", task, *(word for pair in pairs for word in ("-i", pair)), *flags]
    return CommandError(
        "a retry has the input of its task; with another one, fork it:"
        f" {invocation.program()} {shlex.join(words)}   (from the beginning; with --from STEP the"
        " steps before that one keep their results)"
    )


def fork(
    task: TaskArgument,
    from_step: Annotated[
        str | None,
        Option(
            "--from", metavar="STEP", help="The first step to run again; default: all steps run."
        ),
    ] = None,
    pairs: InputOption = None,
    input_json: InputJsonOption = None,
    *,
    latest: LatestOption = False,
    wait: WaitOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run again from the beginning, or from a step on, in a new task.

    With --from the new task keeps the results of the steps before that one. Inputs can be changed.
    """
    from agent.cli import inputs

    values, texts = inputs.parse_inputs(pairs or [], input_json)

    def command(client: "AgentClient", task_id: str) -> "CommandResult":
        edited = _edited(client, task_id, values, texts) if values or texts else None
        return client.fork(task_id, from_step, edited, is_latest=latest)

    operate(task, command, wait=wait, no_input=no_input, as_json=as_json)


def resolve(
    task: TaskArgument,
    step: StepArgument,
    *,
    done: Annotated[bool, Option("--done", help="It happened: continue after it.")] = False,
    again: Annotated[bool, Option("--retry", help="It did not happen: run it again.")] = False,
    fail: Annotated[bool, Option("--fail", help="Fail the step.")] = False,
    output: Annotated[
        str | None,
        Option("--output", metavar="JSON", help="With --done: the output of the step."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Resolve an unknown effect: its result was never recorded."""
    from agent.cli import inputs
    from agent.cli.errors import CommandError

    session.require_person("resolve an unknown effect")
    verdicts: dict[Verdict, bool] = {"done": done, "retry": again, "fail": fail}
    chosen = [verdict for verdict, is_given in verdicts.items() if is_given]
    if len(chosen) != 1:
        raise CommandError("give exactly one of --done, --retry and --fail")
    if output is not None and not done:
        raise CommandError("--output needs --done")
    value = None if output is None else inputs.parse_json(output, "--output")

    def command(client: "AgentClient", task_id: str) -> "CommandResult":
        return client.resolve(task_id, step, chosen[0], value)

    operate(task, command, as_json=as_json)


def signal(
    task: TaskArgument,
    name: Annotated[str, Argument(metavar="NAME", help="The signal's name.")],
    payload: Annotated[
        str | None,
        Argument(
            metavar="VALUE|JSON",
            help="Its payload: JSON where it is valid JSON, else text. - reads standard input.",
        ),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Send a signal to a task; it is kept until a step takes it."""
    import sys

    from agent.core.key_values import parse_value

    if payload == "-":
        payload = sys.stdin.read().removesuffix("\n")
    value = None if payload is None else parse_value(payload)
    operate(task, lambda client, task_id: client.signal(task_id, name, value), as_json=as_json)


def _edited(
    client: "AgentClient", task_id: str, values: dict[str, Any], texts: dict[str, str]
) -> dict[str, Any]:
    """Return the edited inputs; typed texts are parsed by the types of the workflow."""
    from agent.workflows.compile.inputs import read_inputs

    document = client.task(task_id)
    graph = client.graph(document["workflow"], document["version"])
    return {**values, **read_inputs(graph, texts)}


def operate(
    task: str,
    command: "Callable[[AgentClient, str], CommandResult]",
    *,
    wait: bool = False,
    no_input: bool = False,
    needs_worker: bool = True,
    as_json: bool,
) -> None:
    """Find the task, run the command, and print its result or follow the task.

    A command that `needs_worker` says so where no worker runs.
    """
    from agent.cli.commands import run
    from agent.cli.output import terminal

    with session.client() as client:
        task_id = client.find_task(task)
        answer = command(client, task_id)
        message = answer.message.replace(answer.task_id, terminal.short(answer.task_id))
        summary = f"task {terminal.short(task_id)}: {message}"
        if wait:
            if not as_json:
                terminal.note(summary)
            run.follow_to_end(client, answer.task_id, as_json=as_json, no_input=no_input)
        if as_json:
            terminal.print_json(
                {"changed": answer.is_changed, "message": answer.message, "task_id": answer.task_id}
            )
            return
        terminal.print_line(summary)
        if needs_worker and client.task(answer.task_id)["status"] == "running":
            run.warn_if_no_worker(client)
