"""A task as text: its graph, its steps, its result and the commands that come next."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from agent.cli import invocation
from agent.cli.output import large_text, terminal, wait_view
from agent.cli.output.terminal import print_line, short
from agent.cli.output.transcript import used
from agent.core import waits
from agent.core.state_machine import shown_step_status
from agent.core.waits import Signal, UnknownCall
from agent.tasks.read_models.task_documents import retried_words

if TYPE_CHECKING:
    from agent.workflows.graph import Graph

_MAX_ITEMS = 20
_WAITING_KINDS = ("wait", "workflow", "approval", "input")
"""Their `started_at` is when they continued, not when they began to wait."""
_SKIPPED = {
    "if": "its `if` was false",
    "run_on": "nothing failed",
    "upstream_failed": "a step that it depends on failed",
    "fail_fast": "another step failed",
    "deadline": "the task's deadline passed",
}


def print_task(document: dict[str, Any], graph: "Graph") -> None:
    """Print everything about a task."""
    print_line(headline(document), terminal.style_of(document["activity"]))
    _print_origins(document)
    for line in version_lines(document, document["changed_code"]):
        print_line(line, "yellow")
    for line in graph_lines(document, graph):
        print_line(line)
    print_line("")
    uncertain = {effect["step"] for effect in document["unknown_effects"]}
    terminal.print_table(
        ("step", "attempt", "took", "result"),
        [
            _row(step, document["status"], uncertain)
            for step in _shown(document["steps"], uncertain)
        ],
    )
    _print_state(document)
    _print_usage(document)
    _print_result(document)
    _print_hints(document)


def print_ending(document: dict[str, Any]) -> None:
    """Print the result of a task that was followed, or what it waits for."""
    print_line(headline(document), terminal.style_of(document["activity"]))
    _print_usage(document)
    _print_result(document)
    _print_hints(document)


def print_started(task_id: str, workflow: str, notice: str | None) -> None:
    """Print that a task is queued; `notice` says that nothing runs it."""
    print_line(f"queued task {short(task_id)} of {workflow}")
    if notice is None:
        print_line(f"  {invocation.program()} watch {short(task_id)}   follows it")
    else:
        print_line(f"  {notice}")


def step_line(step: dict[str, Any], task_status: str) -> str:
    """Return one line about a step, for output that is not a terminal."""
    line = f"{terminal.marked(step['status'])} {step['name']}"
    if step["attempt"] > 1:
        line += f" (attempt {step['attempt']})"
    if step["ended_at"] and step["started_at"] and took(step):
        line += f" in {took(step)}"
    why = reason(step, task_status)
    return f"{line}: {why}" if why else line


def graph_lines(
    document: dict[str, Any], graph: "Graph", notes: dict[str, str] | None = None
) -> list[str]:
    """Draw the task's graph with the status of each step, and with notes by step name."""
    from agent.workflows.draw import draw

    steps = [step for step in document["steps"] if step["parallel_index"] is None]
    shown = {step["name"]: _drawn_status(step["status"], document) for step in steps}
    return draw(graph, shown, notes)


def _drawn_status(status: str, document: dict[str, Any]) -> str:
    # The process that ran it has gone.
    is_left = status == "running" and document["activity"] == "waiting for an agent"
    return "pending" if is_left else shown_step_status(status, document["status"])


def _shown(steps: list[dict[str, Any]], uncertain: Collection[str] = ()) -> list[dict[str, Any]]:
    """Leave out steps that did not start, and the succeeded items of large groups."""
    return [
        step
        for step in steps
        if (step["status"] != "pending" or step["attempt"] > 1 or step["name"] in uncertain)
        and (
            step["parallel_index"] is None
            or step["status"] != "succeeded"
            or (step["parallel_count"] or 0) <= _MAX_ITEMS
        )
    ]


def headline(document: dict[str, Any]) -> str:
    """Return one line about a task."""
    what = f"{document['workflow']} version {document['version']}"
    line = f"{terminal.marked(document['activity'])}: task {short(document['id'])} of {what}"
    if document["ended_at"]:
        line += f", in {took(document)}"
    if document["pause_reason"]:
        line += f" ({document['pause_reason']})"
    return line


def took(timed: dict[str, Any]) -> str:
    """Return the duration of a task or a step so far; nothing for a step that only waits."""
    if timed.get("kind") in _WAITING_KINDS:
        return ""
    seconds = terminal.seconds_between(timed["started_at"], timed["ended_at"])
    return terminal.duration(seconds)


def _row(step: dict[str, Any], task_status: str, uncertain: set[str]) -> tuple[str, ...]:
    result = reason(step, task_status)
    if step["name"] in uncertain:
        result = "its effect may have happened" + (f" ({result})" if result else "")
    if _is_cut(step["output"]):
        result = f"(output cut) {terminal.one_line(step['output'], 65)}"
    if not result and step["status"] == "succeeded" and step["output"] is not None:
        result = terminal.one_line(step["output"], 80)
    duration = took(step) if step["ended_at"] or step["status"] == "running" else ""
    return (step["name"], attempt(step), duration, result)


def _is_cut(output: Any) -> bool:
    return isinstance(output, dict) and output.get("truncated") is True


def attempt(step: dict[str, Any]) -> str:
    """Return the number of a step's attempt, unless it is the first."""
    number = step["attempt"]
    if (step.get("error") or {}).get("code") == "attempts_exhausted":
        # The last one did not run: it only found that no attempt is left.
        number -= 1
    if step["attempt"] <= 1:
        return ""
    if number > step["max_attempts"]:
        # An attempt that only waits, asks, or checks the effect of the last one.
        return str(number)
    return f"{number} of {step['max_attempts']}"


def reason(step: dict[str, Any], task_status: str) -> str:
    """Return why a step failed, was skipped, waits or is delayed; else an empty text."""
    if step["status"] == "failed" and step["error"]:
        return terminal.one_line(step["error"]["message"], 200)
    if (
        step["status"] == "pending"
        and step["attempt"] > 1
        and step["error"]
        and task_status != "canceled"
    ):
        left = terminal.seconds_until(step["wake_at"])
        soon = f"in {terminal.duration(left)}, " if left else ""
        return f"{soon}after {terminal.one_line(step['error']['message'], 200)}"
    if step["status"] == "skipped":
        return _SKIPPED.get(step["skip_reason"] or "", step["skip_reason"] or "")
    if step["status"] == "waiting":
        if task_status == "canceled":
            # Cancelling leaves steps as they are.
            return "until the task was canceled"
        return wait_view.waiting(step["waiting_on"] or {}, step.get("error"))
    if delay := step.get("delay"):
        return wait_view.delayed(delay)
    return ""


def _print_usage(document: dict[str, Any]) -> None:
    """Print model usage, and the command that shows the calls."""
    if document["usage"]["turns"]:
        steps = [step["name"] for step in document["steps"] if step["usage"]]
        print_line(f"usage: {used(document['usage'])}")
        if steps:
            print_line(
                f"  {invocation.program()} show {short(document['id'])} {steps[0]}   shows the calls"
            )


def _print_state(document: dict[str, Any]) -> None:
    """Print the values of `state` that the steps have read and written."""
    for step in _shown(document["steps"]):
        if not step["state"]:
            continue
        read = [
            f"{name} = {terminal.one_line(value['value'], 40)} (version {value['version']})"
            if value["exists"]
            else f"{name} (no value)"
            for name, value in sorted(step["state"]["read"].items())
        ]
        wrote = [
            f"{change['name']} (version {change['version']})" for change in step["state"]["written"]
        ]
        parts = [f"read {', '.join(read)}"] * bool(read) + [f"wrote {', '.join(wrote)}"] * bool(
            wrote
        )
        print_line(f"state: {step['name']} {'; '.join(parts)}")


def _print_origins(document: dict[str, Any]) -> None:
    """Print a task's trigger, its inputs and its relatives."""
    kind = (document["trigger"] or {}).get("kind")
    by = f", by {kind}" if kind not in (None, "manual") else ""
    if origin := document.get("chat_origin"):
        by += f" ({origin['channel']}:{origin['recipient']})"
    print_line(f"created {terminal.ago(document['created_at'])}{by}", "dim")
    for name, value in (document["input"] or {}).items():
        print_line(f"input {name}: {terminal.one_line(value, 100)}", "dim")
    relations = {"child of": "parent", "retry of": "retry_of", "fork of": "forked_from"}
    for words, key in relations.items():
        if document[key]:
            print_line(f"{words} {short(document[key])}", "dim")
    if again := retried_words(document):
        print_line(again, "yellow")
    if document["children"]:
        print_line(f"children: {', '.join(map(short, document['children']))}", "dim")


def version_lines(document: dict[str, Any], steps: list[str]) -> list[str]:
    """Return the changes of some steps since the task's version was recorded."""
    changed = [step for step in document["changed_code"] if step in steps]
    lines = []
    if changed:
        noun = "step" if len(changed) == 1 else "steps"
        lines = [
            f"the code of {noun} {', '.join(changed)} has changed since this task's version was recorded"
        ]
    newest = document["latest_version"]
    if newest is not None and newest > document["version"]:
        lines.append(f"version {newest} of {document['workflow']} is newer")
    return lines


def _print_result(document: dict[str, Any]) -> None:
    if document["status"] == "succeeded" and document["output"] is not None:
        print_line("output:", "bold")
        large_text.print_value(document["output"], f"show {short(document['id'])}")
    if document["error"]:
        error = document["error"]
        step = f"step {error['step']}: " if error.get("step") else ""
        print_line(f"{step}{error['message']}", "red")


def _print_need(on: dict[str, Any], task: str) -> None:
    """Print what a step of a task, or of a child task, needs from a person."""
    if "paused" in on:
        why = f" ({on['paused']})" if on["paused"] else ""
        print_line(f"the child task {task} is paused{why}; resume it with:")
        print_line(f"  {invocation.program()} {on.get('command') or f'resume {task}'}")
        return
    where = f"step {on['step']}" + (f" of the child task {task}" if "task" in on else "")
    wait = waits.from_document(on)
    if isinstance(wait, Signal):
        print_line(f"{where} waits for a signal; send it with:")
        print_line(f"  {invocation.program()} signal {task} {wait.name} [VALUE]")
    elif not isinstance(wait, UnknownCall):
        _print_question(on, where)
    else:
        print_line(
            f"unknown: the result of the effect of {where} was never recorded; check whether it happened:"
        )
        if "now" in on:
            print_line(f"  sent, result unknown:       {terminal.one_line(on['was'], 2000)}")
            print_line(f"  what --retry would send:    {terminal.one_line(on['now'], 2000)}")
        step = terminal.quoted_step(on["step"])
        print_line(f"  {invocation.program()} resolve {task} {step} --done | --retry | --fail")


def print_unknown_effects(document: dict[str, Any], task: str) -> None:
    """Print what an ended task, or one of its steps, may have done, and how to record what became of it."""
    for effect in document["unknown_effects"]:
        print_line(
            f"unknown: {effect['action']} of step {effect['step']} may have happened: its result was"
            " never recorded. Look, then record it:",
            "yellow",
        )
        step = terminal.quoted_step(effect["step"])
        print_line(f"  {invocation.program()} resolve {task} {step} --done | --retry")


def _print_question(on: dict[str, Any], where: str) -> None:
    """Print a question and how to answer it."""
    approval = short(on["approval"])
    print_line(f"{where} asks: {on.get('message')}")
    if on.get("kind") == "input":
        print_line(f"  {invocation.program()} answer {approval} VALUE")
    else:
        print_line(
            f"  {invocation.program()} approve {approval}   or   {invocation.program()} deny {approval} --reason WHY"
        )
    print_line(f"  {invocation.program()} approvals {approval}   shows it in full")


def _print_hints(document: dict[str, Any]) -> None:
    """Print the commands that come next."""
    from agent.tasks.read_models import person_waits

    task = short(document["id"])
    for on in person_waits.waits_on_person(document):
        _print_need(on, short(on.get("task") or document["id"]))
    if document["status"] == "paused":
        # An exhausted budget would pause it again.
        command = document.get("pause_command") or f"resume {task}"
        print_line(f"  {invocation.program()} {command}   resumes it")
    print_unknown_effects(document, task)
    if document["status"] in ("failed", "canceled"):
        failed = (document["error"] or {}).get("step")
        if failed:
            step = terminal.quoted_step(failed)
            print_line(f"  {invocation.program()} show {task} {step}   shows each attempt of it")
        print_line(f"  {invocation.program()} logs {task}     shows the output of its steps")
        forking = _fork_of(document)
        if again := document["retried_as"]:
            print_line(
                f"  {invocation.program()} show {short(again['id'])}     shows the task that retried it"
            )
        elif forking is not None:
            print_line(
                f"  {invocation.program()} {forking}   runs that step again, with all its effects"
            )
        else:
            print_line(f"  {invocation.program()} retry {task}    retries what did not succeed")
            if (document["latest_version"] or 0) > document["version"]:
                newest = f"on version {document['latest_version']}"
                print_line(f"  {invocation.program()} retry {task} --latest   does so {newest}")


def _fork_of(document: dict[str, Any]) -> str | None:
    """Return the fork that an error suggests where a retry would fail in the same way."""
    for step in document["steps"]:
        if step["status"] == "failed" and step["error"] and step["error"].get("command"):
            return str(step["error"]["command"])
    return None
