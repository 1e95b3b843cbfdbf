"""Questions of a task that is followed on a terminal: asked and answered right there.

The answer goes through the same function as every other one, which checks permission and lets only the
first answer count. A question that is answered elsewhere meanwhile leaves the screen.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from agent.cli import invocation
from agent.cli.errors import Exit, classify
from agent.cli.output import question_view, terminal
from agent.cli.output.line_input import LineInput
from agent.core.escape import harmless_json

if TYPE_CHECKING:
    from agent.approvals.answering import AnswerVerb
    from agent.cli.client.base import AgentClient

_APPROVING: Final = frozenset({"a", "approve", "y", "yes"})
_DENYING: Final = frozenset({"d", "deny", "n", "no"})
_VERDICTS: Final = ("done", "retry", "fail")
_SHORT_SECONDS: Final = 0.05


class _ClosedError(Exception):
    """The question was decided elsewhere, has expired or was withdrawn."""


class InlineAnswers:
    """Asks the questions of one followed task, each until it is answered or left open."""

    def __init__(self, client: "AgentClient") -> None:
        self._client = client
        self._left: set[str] = set()
        """Questions that the person deferred, left, or may not answer."""
        self.asked: dict[str, Any] | None = None
        """The question that is on the screen."""

    def ask_next(self, document: dict[str, Any], check: Callable[[], None]) -> bool:
        """Ask the first question that a task waits on; return whether to go on following it."""
        approval_id = self._first(document)
        if approval_id is None:
            return False
        question = self._client.approval(approval_id)
        if question["status"] != "pending":
            # The task's document is older than the answer.
            check()
            time.sleep(_SHORT_SECONDS)
            return True
        if not self._may_answer(question):
            self._leave(question)
            return self._first(document) is not None
        self.asked = question
        prompt = _Prompt(self._client, question, check)
        try:
            if not prompt.run():
                self._leave(question)
        except _ClosedError:
            print(flush=True)
            question = self._client.approval(approval_id)
            terminal.print_line(question_view.decision_line(question), "bold")
        prompt.discard()
        self.asked = None
        return approval_id not in self._left or self._first(document) is not None

    def _leave(self, question: dict[str, Any]) -> None:
        self._left.add(question["id"])

    def _first(self, document: dict[str, Any]) -> str | None:
        from agent.core import waits
        from agent.tasks.read_models import person_waits

        if document["status"] != "running":
            return None
        for on in person_waits.waits_on_person(document):
            approval_id = waits.approval_of(waits.from_document(on))
            if approval_id is not None and approval_id not in self._left:
                return approval_id
        return None

    def _may_answer(self, question: dict[str, Any]) -> bool:
        """Whether the person at this terminal may answer; a remote agent decides that itself."""
        from agent.approvals.permission import may_answer, terminal_user

        return bool(invocation.server_url()) or may_answer(
            terminal_user(invocation.user()), question["who"]
        )


class _Prompt:
    """One question on the screen."""

    def __init__(
        self, client: "AgentClient", question: dict[str, Any], check: Callable[[], None]
    ) -> None:
        self._client = client
        self._question = question
        self._check = check
        self._is_whole = question_view.print_question(question, clips=True)
        self._input = LineInput(self._poll)
        self.discard = self._input.discard

    def run(self) -> bool:
        """Ask until the question is answered; return False if it is left open."""
        by_kind = {"input": self._ask_value, "unknown": self._ask_verdict}
        ask = by_kind.get(self._question["kind"], self._ask_approval)
        if self._question["kind"] == "input":
            self._print_choices()
        while True:
            try:
                is_done = ask()
            except _NotAnswered as error:
                if str(error):
                    terminal.print_line(str(error), "yellow")
                continue
            except _LeftOpen:
                return False
            return is_done

    def _ask_approval(self) -> bool:
        words = ["approve", "deny", *(["edit"] if self._question["editable"] else [])]
        words += ["later", "quit"] if self._is_whole else ["show", "later", "quit"]
        line = self._input.ask(f"{', '.join(words[:-1])} or {words[-1]}? ")
        word = (line or "").lower()
        if word in _APPROVING:
            self._require_whole()
            return self._decide("approve")
        if word in _DENYING:
            return self._deny()
        if word in ("e", "edit") and self._question["editable"]:
            self._require_whole()
            return self._edit()
        return self._other(line)

    def _ask_verdict(self) -> bool:
        words = "done, retry, fail, later or quit? "
        line = self._input.ask(words if self._is_whole else f"show, {words}")
        verdict = (line or "").lower()
        # Whole words only: `d` would be deny for another question.
        if verdict not in _VERDICTS:
            return self._other(line)
        if not self._is_whole:
            again = self._input.ask(f"the request is not shown whole; type {verdict} to confirm: ")
            if (again or "").lower() != verdict:
                raise _NotAnswered("not confirmed")
        return self._decide("answer", value=verdict)

    def _ask_value(self) -> bool:
        from agent.steps.spec.questions import read_answer

        line = self._input.ask("answer (or /deny, /later, /quit): ")
        if line is None or line.startswith("/"):
            word = None if line is None else line[1:]
            return self._deny() if word == "deny" else self._other(word)
        if not line:
            raise _NotAnswered("")
        choices = self._question["choices"]
        value = read_answer(line, choices, self._question["schema"])
        if choices is not None and value not in choices and line.isdecimal():
            number = int(line)
            value = choices[number - 1] if 1 <= number <= len(choices) else value
        return self._decide("answer", value=value)

    def _print_choices(self) -> None:
        for number, choice in enumerate(self._question["choices"] or (), start=1):
            terminal.print_line(f"  {number}) {terminal.one_line(choice, 200)}")

    def _other(self, line: str | None) -> bool:
        """Follow the words that every question knows."""
        word, _, rest = (line or "").partition(" ")
        word = word.lower()
        if line is None or word in ("q", "quit"):
            return False
        if word in ("l", "later", "defer"):
            return self._defer(rest.strip())
        if word == "show":
            self._is_whole = question_view.print_request(self._question)
            raise _NotAnswered("")
        raise _NotAnswered("" if not line else f"{line!r} is none of these")

    def _require_whole(self) -> None:
        """Refuse to approve what was not on the screen: an approval covers exactly what was shown."""
        if not self._is_whole:
            raise _NotAnswered("the request is not shown whole: `show` prints all of it")

    def _deny(self) -> bool:
        reason = self._input.ask("reason (may be empty): ")
        if reason is None:
            raise _NotAnswered("not denied")
        return self._decide("deny", comment=reason or None)

    def _edit(self) -> bool:
        """Ask for new values of the keys that may be edited, and for a confirmation of them."""
        from agent.steps.spec.questions import read_edits, value_at

        config = self._question["request"].get("config")
        edits: dict[str, Any] = {}
        for path in self._question["editable"]:
            current = value_at(config, path)
            terminal.print_line(f"{path}: {harmless_json(current)}")
            line = self._input.ask(f"new {path} (JSON or text; empty keeps it): ")
            if line is None:
                raise _NotAnswered("nothing was changed")
            if line:
                try:
                    edits |= read_edits(config, {path: line})
                except ValueError as error:
                    raise _NotAnswered(f"nothing was changed: {error}") from None
        if not edits:
            raise _NotAnswered("nothing was changed")
        for path, value in edits.items():
            before = harmless_json(value_at(config, path))
            terminal.print_line(f"{path}: {before} → {harmless_json(value)}", "bold")
        line = self._input.ask("approve with these changes (yes or no)? ")
        if (line or "").lower() not in _APPROVING:
            raise _NotAnswered("not approved")
        return self._decide("approve", edits=edits)

    def _defer(self, time: str) -> bool:
        from agent.workflows.durations import parse_duration

        text = time or self._input.ask("remind again in (as in 30m, 4h or 1d): ") or ""
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise _NotAnswered(f"{text}: {error}") from None
        self._attempt(lambda: self._client.defer(self._question["id"], seconds))
        until = terminal.moment(self._client.approval(self._question["id"])["remind_at"])
        terminal.print_line(f"{terminal.short(self._question['id'])}: deferred until {until}")
        return False

    def _decide(
        self,
        verb: "AnswerVerb",
        *,
        comment: str | None = None,
        value: Any = None,
        edits: dict[str, Any] | None = None,
    ) -> bool:
        approval_id = self._question["id"]
        self._attempt(
            lambda: self._client.decide(
                approval_id, verb, comment=comment, value=value, edits=edits
            )
        )
        decided = self._client.approval(approval_id)
        terminal.print_line(question_view.decision_line(decided), "bold")
        return True

    def _attempt(self, act: Callable[[], None]) -> None:
        """Answer; a wrong answer is asked for again, and one that came too late is none."""
        try:
            act()
        except Exception as error:
            code, message = classify(error)
            if code not in (Exit.BAD_INPUT, Exit.REFUSED):
                raise
            self._poll()
            if code is Exit.REFUSED:
                # It is still open: this person may not answer it.
                terminal.print_line(message, "yellow")
                raise _LeftOpen from None
            raise _NotAnswered(message) from None

    def _poll(self) -> None:
        """Leave the prompt if the question is open no more, or the process that runs the task is gone."""
        if self._client.approval(self._question["id"])["status"] != "pending":
            raise _ClosedError
        self._check()


class _NotAnswered(Exception):  # noqa: N818 - the prompt comes again
    """The typed text is no answer; the message says why."""


class _LeftOpen(Exception):  # noqa: N818 - the prompt does not come again
    """The question stays open."""
