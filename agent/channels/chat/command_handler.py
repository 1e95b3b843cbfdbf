"""Runs the commands and answers of people in chats; the same for every chat and `agent chat`."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from agent.approvals import answering, approval_documents
from agent.approvals.answering import AnswerVerb, InvalidAnswerError
from agent.approvals.permission import NotAllowedError, Principal, check_scope
from agent.channels.chat import commands, message_texts
from agent.channels.chat.commands import Command, CommandError
from agent.channels.chat.trigger_commands import ChatTriggers, CheckWatcher
from agent.core.chat_origin import ChatOrigin
from agent.core.clock import to_iso
from agent.core.escape import harmless
from agent.core.key_values import parse_value
from agent.core.logs import audit
from agent.steps.spec.message_config import ORIGIN
from agent.steps.spec.questions import read_answer, read_edits
from agent.steps.types.outcome import Json
from agent.store.channels import answer_tokens
from agent.store.db.database import Connection, Database
from agent.store.db.json_values import NotPlainJsonError
from agent.store.engine import workflow_versions
from agent.store.read import health
from agent.store.read.activity import Activity
from agent.store.read.task_list import TaskFilter
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.read_models import task_documents, task_list
from agent.tasks.read_models.task_documents import AmbiguousIdError, short_id
from agent.tasks.submission import TooManyStepsError, new_submission, recorded_workflow
from agent.triggers.commands.command_request import InvalidTimeError
from agent.workflows.compile.inputs import InputError
from agent.workflows.durations import parse_duration
from agent.workflows.graph import Graph

_EXPECTED: Final = (
    AmbiguousIdError,
    CommandError,
    InputError,
    InvalidAnswerError,
    NotAllowedError,
    NotFoundError,
    NotPlainJsonError,
    RefusedError,
    InvalidTimeError,
    TooManyStepsError,
)
_AUDITED: Final = frozenset(
    name for name, spec in commands.COMMANDS.items() if spec.scope != "read" or name == "open"
) - {"run"}
"""Without `run`: a task records itself who started it."""
_MAX_LISTED: Final = 15
_MAX_LENGTH: Final = 3500


@dataclass(frozen=True, slots=True)
class Sent:
    """The identity of a message from a person, and its thread."""

    key: str | None = None
    thread: str | None = None


class CommandHandler:
    """Runs commands and answers for a caller that the channel has identified."""

    def __init__(
        self,
        database: Database,
        steps_per_task: int,
        link_of: Callable[[Principal], str] | None = None,
        check_watcher: CheckWatcher | None = None,
    ) -> None:
        """Set up the commands.

        `link_of` makes the reply to `/open`, where there is a dashboard; `check_watcher` polls for
        `/watchers check`.
        """
        self._database = database
        self._link_of = link_of
        self._steps_per_task = steps_per_task
        self._operator = Operator(database, database.clock)
        self._chat_triggers = ChatTriggers(database, check_watcher)
        self._handlers: dict[str, Callable[[Principal, Command, Sent], str]] = {
            "status": self._status,
            "tasks": self._tasks,
            "task": self._task,
            "why": self._why,
            "run": self._run,
            "pause": self._pause,
            "resume": self._resume,
            "cancel": self._cancel,
            "retry": self._retry,
            "schedules": self._triggers,
            "watchers": self._triggers,
            "approvals": self._approvals,
            "approve": self._answer_command,
            "deny": self._answer_command,
            "edit": self._answer_command,
            "answer": self._answer_command,
            "defer": self._defer,
            "open": self._open,
            "help": self._help,
        }
        assert self._handlers.keys() == commands.COMMANDS.keys()

    def reply(
        self, principal: Principal, text: str, key: str | None = None, thread: str | None = None
    ) -> str:
        """Run a command if the caller may, and return the reply; other text starts its workflow.

        The reply is empty where that workflow answers by itself.

        `key` identifies the message: a message that arrives twice creates one task. `thread` is the
        thread that it was written in. Raises only when the database cannot be used.
        """
        sent = Sent(key, thread)
        try:
            if not commands.is_command(text):
                return harmless(self._take_text(principal, text, sent))
            command = commands.parse(text)
            run = self._handlers.get(command.name, self._run_workflow_command)
            with _audited(principal, command):
                commands.check(principal, command)
                return harmless(run(principal, command, sent))
        except _EXPECTED as error:
            return harmless(str(error))

    def answer(self, principal: Principal, approval_id: str, answer: dict[str, Json]) -> str:
        """Give the answer of a button or a reply if the caller may, and return the reply."""
        try:
            command = Command("answer", approval_id)
            with _audited(principal, command):
                commands.check(principal, command)
                return harmless(self._decide(principal, approval_id, answer))
        except _EXPECTED as error:
            return harmless(str(error))

    def _status(self, _principal: Principal, _command: Command, _sent: Sent) -> str:
        with self._database.connect("reader") as connection, connection.snapshot():
            counts = health.open_counts(connection)
            waiting = health.pending_approvals(connection)
            unknown = len(health.unknown_calls(connection))
        tasks = ", ".join(f"{count} {activity}" for activity, count in counts.items())
        lines = [f"tasks: {tasks or 'none yet'}", f"open questions: {waiting}"]
        if unknown:
            lines.append(f"effects whose result is unknown: {unknown}")
        return "\n".join(lines)

    def _tasks(self, _principal: Principal, command: Command, _sent: Sent) -> str:
        activity = command.subject
        if activity is not None and activity not in set(Activity):
            raise CommandError(f"there is no activity {activity!r}: {', '.join(Activity)}")
        with self._database.connect("reader") as connection, connection.snapshot():
            wanted = TaskFilter(activities=(activity,) if activity else ())
            tasks = task_list.list_tasks(connection, wanted, _MAX_LISTED)
        return "\n".join(map(message_texts.task_line, tasks)) or "no tasks"

    def _task(self, _principal: Principal, command: Command, _sent: Sent) -> str:
        return message_texts.cut(message_texts.task(self._document(command)), _MAX_LENGTH)

    def _why(self, _principal: Principal, command: Command, _sent: Sent) -> str:
        return message_texts.cut(message_texts.why(self._document(command)), _MAX_LENGTH)

    def _run(self, principal: Principal, command: Command, sent: Sent) -> str:
        return self._start(principal, str(command.subject), command.pairs, sent)

    def _run_workflow_command(self, principal: Principal, command: Command, sent: Sent) -> str:
        """Start the workflow that declares this command (`on: chat`)."""
        for name, keys in self._chat_workflows():
            if keys.get("command") == command.name:
                return self._start(principal, name, command.pairs, sent)
        raise CommandError(f"there is no command /{command.name}; /help lists them")

    def _help(self, principal: Principal, _command: Command, _sent: Sent) -> str:
        declared = self._chat_workflows()
        own = {
            keys["command"]: keys.get("description") or f"start {name}"
            for name, keys in declared
            if keys.get("command")
        }
        texts = [
            keys.get("description") or f"start {name}"
            for name, keys in declared
            if keys.get("text")
        ]
        return commands.help_text(principal, own, texts[0] if len(texts) == 1 else None)

    def _open(self, principal: Principal, _command: Command, _sent: Sent) -> str:
        if self._link_of is None:
            raise RefusedError("there is no dashboard here: the agent's server does not run")
        return self._link_of(principal)

    def _triggers(self, principal: Principal, command: Command, sent: Sent) -> str:
        return self._chat_triggers.reply(principal, command, sent.key)

    def _take_text(self, principal: Principal, text: str, sent: Sent) -> str:
        """Start the one workflow that takes free text (`on: chat: {text: true}`)."""
        names = self.takers_of_text()
        if not names or not text.strip():
            raise CommandError(commands.NO_COMMAND)
        commands.check_length(text)
        check_scope(principal, "operate", "free text")
        if len(names) > 1:
            raise CommandError(
                f"several workflows take free text ({', '.join(names)}), and one at most may:"
                " remove `on: chat: {text: true}` from the others"
            )
        at = to_iso(self._database.clock.now())
        started = self._start(principal, names[0], {}, sent, text=text.strip(), at=at)
        with self._database.connect("reader") as connection:
            workflow = recorded_workflow(connection, names[0])
        # A workflow that answers here itself needs no other reply.
        return "" if workflow is not None and _answers_origin(workflow.graph) else started

    def takers_of_text(self) -> list[str]:
        """Return the workflows that take free text; more than one is a mistake."""
        return [name for name, keys in self._chat_workflows() if keys.get("text")]

    def _chat_workflows(self) -> list[tuple[str, dict[str, Json]]]:
        """Return the workflows that a chat can start, with their `on: chat` keys."""
        declared: list[tuple[str, dict[str, Json]]] = []
        with self._database.connect("reader") as connection, connection.snapshot():
            for workflow in workflow_versions.latest_versions(connection):
                latest = workflow_versions.latest(connection, workflow.name)
                keys = Graph.model_validate_json(latest[1]).on.get("chat") if latest else None
                if keys:
                    declared.append((workflow.name, keys))
        return declared

    def _start(
        self,
        principal: Principal,
        name: str,
        texts: dict[str, str],
        sent: Sent,
        **context: Json,
    ) -> str:
        with self._database.connect("reader") as connection:
            workflow = recorded_workflow(connection, name)
        if workflow is None:
            raise NotFoundError(f"there is no workflow {name!r}")
        submission = new_submission(
            workflow,
            steps_per_task=self._steps_per_task,
            trigger={
                "kind": "chat",
                "channel": principal.channel,
                "by": principal.identity,
                **context,
            },
            texts=texts,
            dedupe_key=None if sent.key is None else f"chat:{principal.channel}:{sent.key}",
            chat_origin=ChatOrigin(principal.channel, principal.identity, sent.thread),
        )
        return f"started {name}: task {short_id(self._operator.submit(submission))}"

    def _pause(self, _principal: Principal, command: Command, _sent: Sent) -> str:
        return self._operator.pause(self._task_id(command), command.rest).message

    def _resume(self, _principal: Principal, command: Command, _sent: Sent) -> str:
        return self._operator.resume(self._task_id(command)).message

    def _cancel(self, _principal: Principal, command: Command, _sent: Sent) -> str:
        return self._operator.cancel(self._task_id(command), command.rest).message

    def _retry(self, _principal: Principal, command: Command, _sent: Sent) -> str:
        if command.rest not in (None, "latest", "--latest"):
            raise CommandError(f"write it as {commands.usage('retry')}")
        is_latest = command.rest is not None
        return self._operator.retry(self._task_id(command), is_latest=is_latest).message

    def _approvals(self, _principal: Principal, command: Command, _sent: Sent) -> str:
        with self._database.connect("reader") as connection, connection.snapshot():
            if command.subject is not None:
                approval_id = approval_documents.find_approval(connection, command.subject)
                document = approval_documents.approval_document(connection, approval_id)
                if document["status"] != "pending":
                    return message_texts.closed_question(document, _MAX_LENGTH)
                return message_texts.question(document, _MAX_LENGTH)[0]
            approvals = approval_documents.list_approvals(connection, limit=_MAX_LISTED)
        return "\n".join(map(message_texts.approval_line, approvals)) or "no open questions"

    def _answer_command(self, principal: Principal, command: Command, _sent: Sent) -> str:
        with self._database.connect("reader") as connection:
            approval_id = approval_documents.find_approval(connection, str(command.subject))
            document = approval_documents.approval_document(connection, approval_id)
        answer: dict[str, Json] = {"decision": command.name, "comment": command.rest}
        if command.name == "edit":
            if not command.pairs:
                raise CommandError(f"write it as {commands.usage('edit')}")
            request = document["request"]
            config = request.get("config") if isinstance(request, dict) else None
            try:
                edits = read_edits(config, command.pairs)
            except ValueError as error:
                raise CommandError(str(error)) from None
            answer = {"decision": "approve", "edits": edits}
        elif command.name == "answer":
            answer = {"decision": "answer", "value": typed_value(document, command.rest or "")}
        return self._decide(principal, approval_id, answer)

    def _defer(self, principal: Principal, command: Command, _sent: Sent) -> str:
        try:
            seconds = parse_duration(command.rest or "")
        except ValueError as error:
            raise CommandError(f"{commands.usage('defer')}: {error}") from None
        with self._database.connect("reader") as connection:
            approval_id = approval_documents.find_approval(connection, str(command.subject))
        answering.defer(self._database, approval_id, seconds, principal=principal)
        return f"you will be reminded of {short_id(approval_id)} in {command.rest}"

    def _decide(self, principal: Principal, approval_id: str, answer: dict[str, Json]) -> str:
        decision: AnswerVerb = answer["decision"]
        answered = answering.answer(
            self._database,
            approval_id,
            decision,
            principal=principal,
            comment=answer.get("comment"),
            value=answer.get("value"),
            edits=answer.get("edits"),
        )
        with self._database.connect("writer") as tx, tx.transaction():
            answer_tokens.use_up(tx, approval_id, self._database.clock.now())
        return f"{answered.status}: step {answered.step} of task {short_id(answered.task_id)}"

    def _document(self, command: Command) -> dict[str, Json]:
        with self._database.connect("reader") as connection, connection.snapshot():
            return task_documents.task_document(connection, self._find_task(connection, command))

    def _task_id(self, command: Command) -> str:
        with self._database.connect("reader") as connection:
            return self._find_task(connection, command)

    def _find_task(self, connection: Connection, command: Command) -> str:
        return task_documents.find_named_task(connection, str(command.subject))


def _answers_origin(graph: Graph) -> bool:
    """Whether a step of a workflow sends its message to where the task was started."""
    return any(
        step.kind == "message" and (not step.config.get("to") or ORIGIN in step.config["to"])
        for step in graph.steps
    )


def _audited(principal: Principal, command: Command) -> AbstractContextManager[None]:
    if command.name not in _AUDITED or principal.is_stranger:
        # Strangers run no commands, and must not fill the file.
        return nullcontext()
    who = f"{principal.channel}:{principal.identity}"
    return audit.recorded(who, principal.channel, command.name, subject=command.subject)


def typed_value(document: dict[str, Json], text: str) -> Json:
    """Parse a typed answer by the type that its question asks for."""
    if document["kind"] == "unknown":
        return parse_value(text)
    return read_answer(text, document["choices"], document["schema"])
