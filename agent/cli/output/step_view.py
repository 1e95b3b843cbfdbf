"""A step as text: each attempt with its input, its calls and its outcome."""

import json
from operator import itemgetter
from typing import Any, Final

from agent.cli import invocation
from agent.cli.output import task_view, terminal, transcript, wait_view
from agent.cli.output.terminal import print_line, short
from agent.core.state_machine import shown_step_status
from agent.core.waits import headline

MAX_VALUE: Final = 2_000
"""The characters of a value that are shown; `--json` has all of it."""
_MAX_QUESTION: Final = 400
MAX_LOG_LINES: Final = 40
_MAX_LINE: Final = 100
"""A longer JSON value is printed on several lines."""
MAX_ITEMS: Final = 20
MAX_CHILDREN: Final = 20
_STREAMS: Final = {"stderr": "stderr: "}
_ATTEMPT_WORDS: Final = {
    "lost": "lost: its process died",
    "returned": "returned, and made again",
    "canceled": "stopped, because the task was canceled",
}


def print_step(document: dict[str, Any]) -> None:
    """Print everything about a step."""
    view = _StepView(document)
    view.print_heading()
    for attempt in document["attempts"]:
        view.print_attempt(attempt)
    if not document["attempts"]:
        print_line("it has not run" if not document["items"] else "its items run by themselves")
    view.print_items()
    view.print_end()


class _StepView:
    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._is_cut = False

    def print_heading(self) -> None:
        document = self._document
        status = shown_step_status(document["status"], document["task_status"])
        title = f"{terminal.marked(status)}: step {document['step']}"
        what = f"({document['kind']}) of task {short(document['task'])}"
        version = f"{document['workflow']} version {document['version']}"
        print_line(f"{title} {what}, {version}", terminal.style_of(status))
        why = task_view.reason(document, document["task_status"])
        if why and document["status"] in ("waiting", "skipped"):
            print_line(f"  {why}")
        for line in task_view.version_lines(document, [document["step"].partition("[")[0]]):
            print_line(f"  {line}", "yellow")
        if kept := document["kept_from"]:
            print_line(f"  kept from task {short(kept['task'])}, where it ran", "dim")
        if document["parallel_index"] is not None:
            self._print_value("item", document["item"], "")
        self._print_children()
        task_view.print_unknown_effects(document, short(document["task"]))
        inherited = [call for call in document["calls"] if call["attempt"] == 0]
        if inherited:
            print_line("taken over from the task that this one retries:", "bold")
            self._print_calls(inherited)

    def _print_children(self) -> None:
        children = self._document["children"]
        for child in children[-MAX_CHILDREN:]:
            what = f"child task of {child['workflow']}, {child['status']}"
            print_line(f"  {what}: {invocation.program()} show {short(child['task'])}")
        left = len(children) - MAX_CHILDREN
        if left > 0:
            print_line(f"  … and {left:,} earlier child tasks", "dim")

    def print_attempt(self, attempt: dict[str, Any]) -> None:
        print_line("")
        print_line(self._attempt_line(attempt), terminal.style_of(_shown_status(attempt)))
        if attempt["executor"]:
            print_line(f"  ran by {_ran_by(attempt['executor'])}")
        if attempt["open_gate"]:
            print_line(f"  needed no approval: {attempt['open_gate']} is false")
        self._print_config(attempt)
        self._print_calls(
            [call for call in self._document["calls"] if call["attempt"] == attempt["attempt"]]
        )
        asked = [(question["asked_at"], _question(question)) for question in attempt["approvals"]]
        waited = [(wait["since"], _wait(wait)) for wait in attempt["waits"]]
        for _, line in sorted(asked + waited, key=itemgetter(0)):
            if line:
                print_line(f"  {line}")
        self._print_log(attempt)
        if attempt["traceback"]:
            print_line("  traceback:", "bold")
            # Its first line repeats the heading.
            frames = attempt["traceback"].replace("Traceback (most recent call last):\n", "")
            print_line(_indented(self._clip(frames), "    "))
        if attempt["error"]:
            code = attempt["error"].get("code")
            lead = f"error ({code})" if code else "error"
            message = self._clip((attempt["error"].get("message") or "").rstrip())
            print_line(_indented(f"{lead}: {message}", "    ")[2:], "red")
        elif attempt["status"] == "succeeded" and not self._document["items"]:
            self._print_value("output", attempt["output"])

    def _print_config(self, attempt: dict[str, Any]) -> None:
        if not attempt["config"]:
            return
        print_line("  config:", "bold")
        for name, value in attempt["config"].items():
            self._print_value(name, value, "    ")
        if attempt["config_clipped"]:
            print_line("    (large values were cut when it was recorded)", "dim")

    def _attempt_line(self, attempt: dict[str, Any]) -> str:
        status: str = attempt["status"]
        line = f"attempt {attempt['attempt']} of {self._document['max_attempts']}: "
        line += _ATTEMPT_WORDS.get(status, status)
        line += f", started {terminal.moment(attempt['started_at'])}"
        if attempt["ended_at"]:
            seconds = terminal.seconds_between(attempt["started_at"], attempt["ended_at"])
            line += f", took {terminal.duration(seconds)}"
        return line

    def _print_calls(self, calls: list[dict[str, Any]]) -> None:
        for call in calls:
            style = "bold" if call["status"] == "succeeded" else "yellow"
            print_line(f"  call {transcript.headline(call)}", style)
            if call["model"]:
                print_line(f"    {transcript.origin(call)}")
            else:
                print_line(f"    idempotency key {call['idempotency_key']}", "dim")
            for line in transcript.request_lines(call) + transcript.response_lines(call):
                print_line(_indented(self._clip(line), "    "))

    def _print_log(self, attempt: dict[str, Any]) -> None:
        lines = [
            f"{terminal.clock_time(piece['at'])} {_STREAMS.get(piece['stream'], '')}{line}"
            for piece in attempt["log"]
            if piece["stream"] != "error"
            for line in piece["text"].rstrip("\n").split("\n")
        ]
        if not lines:
            return
        print_line("  log:", "bold")
        if len(lines) > MAX_LOG_LINES or attempt["log_clipped"]:
            command = f"logs {short(self._document['task'])} {terminal.quoted_step(self._document['step'])}"
            left = max(len(lines) - MAX_LOG_LINES, 0)
            more = f"{left:,} earlier lines" if not attempt["log_clipped"] else "earlier lines"
            print_line(f"    … {more}: {invocation.program()} {command}", "dim")
        for line in lines[-MAX_LOG_LINES:]:
            print_line(f"    {self._clip(line)}")

    def print_items(self) -> None:
        document = self._document
        if not document["items"]:
            return
        print_line("")
        shown = document["items"][:MAX_ITEMS]
        terminal.print_table(
            ("item", "status", "attempt", "value", "error"),
            [
                (
                    item["name"],
                    item["status"],
                    str(item["attempt"]),
                    terminal.one_line(item["item"], 60),
                    terminal.one_line((item["error"] or {}).get("message", ""), 80),
                )
                for item in shown
            ],
            status_column=1,
        )
        left = (document["parallel_count"] or 0) - len(shown)
        if left > 0:
            print_line(f"… {left:,} more")
        command = f"show {short(document['task'])} {terminal.quoted_step(shown[0]['name'])}"
        print_line(f"  {invocation.program()} {command}   shows one of them")

    def print_end(self) -> None:
        document = self._document
        if document["usage"] and document["usage"]["turns"]:
            print_line("")
            print_line(f"total: {transcript.used(document['usage'])}")
        if self._is_cut:
            step = terminal.quoted_step(document["step"])
            of = f"{invocation.program()} show {short(document['task'])} {step}"
            print_line("")
            print_line(f"Long values are cut: {of} --json has all of them,", "dim")
            print_line(f"  {of} --output FILE writes the output to a file", "dim")

    def _print_value(self, name: str, value: Any, indent: str = "  ") -> None:
        text = value if isinstance(value, str) else self._json(value)
        text = self._clip(text)
        if "\n" in text:
            print_line(f"{indent}{name}:")
            print_line(_indented(text, indent + "  "))
        else:
            print_line(f"{indent}{name}: {text}")

    def _json(self, value: Any) -> str:
        """Return a value as JSON, its long parts cut."""
        from agent.steps.types.clipping import clipped

        shown, is_cut = clipped(value, MAX_VALUE - 200)
        self._is_cut |= is_cut
        text = json.dumps(shown, ensure_ascii=False)
        return text if len(text) <= _MAX_LINE else terminal.to_json_text(shown)

    def _clip(self, text: str) -> str:
        if len(text) <= MAX_VALUE:
            return text
        self._is_cut = True
        return f"{text[:MAX_VALUE]}… ({len(text):,} characters)"


def _shown_status(attempt: dict[str, Any]) -> str:
    return "failed" if attempt["status"] == "lost" else str(attempt["status"])


def _indented(text: str, indent: str) -> str:
    return "\n".join(indent + line for line in text.rstrip("\n").split("\n"))


def _ran_by(executor: dict[str, Any]) -> str:
    """Say which executor ran an attempt, and where."""
    name, *rest = executor.values()
    where = [f"{key} {value}" for key, value in zip(list(executor)[1:], rest, strict=True) if value]
    return f"executor {name}" + (f": {', '.join(where)}" if where else "")


def _question(question: dict[str, Any]) -> str:
    question_line = f"asked: {terminal.one_line(headline(question['message']), _MAX_QUESTION)}"
    if question["decided_at"] is None:
        return f"{question_line} ({question['status']})"
    by = f" by {question['by']}" if question["by"] else ""
    edits = f", with edits {terminal.one_line(question['edits'], 80)}" if question["edits"] else ""
    return f"{question_line}: {question['status']}{by}{edits}"


def _wait(wait: dict[str, Any]) -> str:
    """Return the reason why an attempt waited; empty for a question, which has lines of its own."""
    on = wait["on"] or {}
    if "approval" in on or "items" in on:
        return ""
    child = on.get("child")
    # The record of the wait was written before the child had an id.
    words = (
        f"waits for a child task of {child['workflow']}"
        if isinstance(child, dict)
        else wait_view.waiting(on)
    )
    line = f"{terminal.clock_time(wait['since'])} {words}"
    if wait["until"]:
        line += f"; woken at {terminal.moment(wait['until'])}"
    return f"{line}: {terminal.one_line(wait['result'], 100)}" if wait["result"] else line
