"""The people of a run: operators who interfere, and one who in the end answers everything."""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agent.approvals import answering
from agent.approvals.answering import InvalidAnswerError
from agent.approvals.permission import NotAllowedError, terminal_user
from agent.core import waits
from agent.core.state_names import workflow_scope
from agent.core.waits import Signal
from agent.store.db.database import Database, StoreError
from agent.store.engine import task_rows, workflow_versions
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator import budget_pause, state_commands
from agent.tasks.operator.conversations import forget
from agent.tasks.operator.operator import CommandResult, Operator
from agent.tasks.state.pauses import PauseKind
from tests.simulation.editions import newer
from tests.simulation.scenario import JsonObject

if TYPE_CHECKING:
    from tests.simulation.run import _Machine

ENDED = ("succeeded", "failed", "canceled")
PLENTY = 1_000_000
NO_TASK, NO_QUESTION = IN_VAIN = ("no such task yet", "no open question")
SOME_CHILD = -1
LAST_TASK = -2
"""Whom an operation is done to, if not to a submission's task."""


class People:
    """What people do, each command in a process of its own."""

    def __init__(self, machine: "_Machine") -> None:
        self._machine = machine
        self._tasks: dict[int, str] = {}
        self._by_key: dict[str, set[str]] = {}

    def learn(self, number: int, key: str | None, task_id: str) -> None:
        """Remember which task a submission became."""
        self._tasks[number] = task_id
        if key is not None:
            self._by_key.setdefault(key, set()).add(task_id)

    def broken_promises(self) -> list[str]:
        """Return the deliveries under one key that became several tasks."""
        return [f"{key} became {ids}" for key, ids in self._by_key.items() if len(ids) > 1]

    def operator(self, database: Database) -> Operator:
        """Return an operator at a process's terminal."""
        return Operator(database, self._machine.clock)

    async def operate(self, operation: JsonObject) -> None:
        """Do one thing to one task, and again if the result is unknown."""
        await asyncio.sleep(operation["at"])
        for _ in range(3):
            try:
                answer = await self._machine.visit("operator", self._command(operation))
            except (RefusedError, NotFoundError, NotAllowedError, InvalidAnswerError) as error:
                self._machine.tell("operator", f"{operation['do']}: refused: {error}")
                return
            except StoreError as error:
                self._machine.tell("operator", f"{operation['do']}: {error}")
                await asyncio.sleep(1.0)
                continue
            self._machine.tell("operator", f"{operation['do']}: {answer}")
            if answer not in IN_VAIN:
                self._machine.result.happened[f"person: {operation['do']}"] += 1
            return

    def _command(self, operation: JsonObject) -> Callable[[Database], object]:
        word, number = operation["do"], operation["task"]

        def command(database: Database) -> object:
            if word == "set state":
                key = (workflow_scope(operation["workflow"]), "own")
                clock, value = self._machine.clock, operation["value"]
                if value is None:
                    return state_commands.delete_value(database, clock, key).message
                return state_commands.set_value(database, clock, key, value).message
            task_id = self._tasks.get(number) if number >= 0 else self._some(database, number)
            if task_id is None:
                return NO_TASK
            operator = self.operator(database)
            match word:
                case "pause":
                    return operator.pause(task_id, "lunch").message
                case "resume":
                    return operator.resume(task_id).message
                case "cancel":
                    return operator.cancel(task_id).message
                case "retry":
                    return operator.retry(task_id).message
                case "signal":
                    return operator.signal(task_id, "go", {"from": "a person"}).message
                case "fork":
                    return self._fork(database, task_id)
                case "forget":
                    return forget(database, "terminal:ada")
                case _:
                    return self._answer_some(database)

        return command

    def _some(self, database: Database, number: int) -> str | None:
        """Return some child, or the newest task: perhaps a retry, a fork or a child."""
        condition = "parent_task_id IS NOT NULL" if number == SOME_CHILD else "1 = 1"
        with database.connect("reader") as connection:
            found = connection.query(f"SELECT id FROM tasks WHERE {condition} ORDER BY id")
        if not found:
            return None
        chosen = self._machine.loop.chance.choice(found) if number == SOME_CHILD else found[-1]
        return str(chosen[0])

    def _fork(self, database: Database, task_id: str) -> str:
        """Run a task again from some step on: that is another line of work."""
        with database.connect("reader") as connection:
            found = connection.query(
                "SELECT s.name, t.workflow_name FROM steps AS s JOIN tasks AS t ON t.id = s.task_id"
                ' WHERE t.id = :id AND s.parallel_index = -1 ORDER BY s."index"',
                id=task_id,
            )
        step, workflow = self._machine.loop.chance.choice(found)
        return self._fork_from(database, task_id, workflow, step)

    def _fork_from(self, database: Database, task_id: str, workflow: str, step: str) -> str:
        name = f"fork of {task_id}"
        edited = {"line": name} if "line" in self._machine.graphs[workflow].inputs else None
        return self.operator(database).fork(task_id, step, edited, dedupe_key=name).message

    def _answer_some(self, database: Database) -> str:
        chance = self._machine.loop.chance
        asked = _questions(database)
        if not asked:
            return NO_QUESTION
        question = chance.choice(asked)
        if question[1] == "approval" and chance.random() < 0.3:
            return self._say(database, question, "deny")
        answer = self._answer(database, question)
        try:
            # A second tap on the same button.
            self._answer(database, question)
        except RefusedError:
            return answer
        raise AssertionError(f"approval {question[0]} was decided twice")

    def _answer(self, database: Database, question: tuple[Any, ...]) -> str:
        _, kind, request, _ = question
        if kind in ("approval", "tool"):
            return self._say(database, question, "approve")
        if kind == "input":
            return self._say(database, question, "answer", "a text")
        truth = self._truth(database, request)
        if self._machine.loop.chance.random() < 0.3:
            return self._resolve(database, question[0], truth)
        return self._say(database, question, "answer", truth)

    def _resolve(self, database: Database, approval_id: str, verdict: Any) -> str:
        """Resolve an unknown effect by its step's name, as the command does."""
        with database.connect("reader") as connection:
            ((task_id, name, item),) = connection.query(
                "SELECT a.task_id, s.name, s.parallel_index FROM approvals AS a"
                " JOIN steps AS s ON s.id = a.step_id WHERE a.id = :id",
                id=approval_id,
            )
        step = name if item < 0 else f"{name}[{item}]"
        clock, ann = self._machine.clock, terminal_user("ann")
        return answering.resolve(
            database, task_id, step, verdict, principal=ann, clock=clock
        ).message

    def _say(
        self, database: Database, question: tuple[Any, ...], word: Any, value: Any = None
    ) -> str:
        clock = self._machine.clock
        ann = terminal_user("ann")
        answered = answering.answer(
            database, question[0], word, principal=ann, clock=clock, value=value
        )
        return answered.message

    def _truth(self, database: Database, request: str) -> str:
        """Return whether an effect happened, as the world has recorded it."""
        asked = json.loads(request)
        self._machine.result.happened["person: saw another request"] += "now" in asked
        given = (asked["request"] or {}).get("arguments")
        if given is not None:
            was_used = self._machine.world.by_use[(given["line"], given["number"])] > 0
            return "done" if was_used else "retry"
        call_id = asked["call"]
        with database.connect("reader") as connection:
            ((remote_key,),) = connection.query(
                "SELECT remote_key FROM tool_calls WHERE id = :id", id=call_id
            )
        return "done" if self._machine.world.has_seen(remote_key) else "retry"

    async def attend(self) -> None:
        """Answer questions while faults go on."""
        while not self._machine.is_calm:
            await asyncio.sleep(self._machine.loop.chance.uniform(0.5, 3.0))
            try:
                await self._machine.visit("attendant", self._answer_all)
            except StoreError as error:
                self._machine.tell("attendant", str(error))

    def _answer_all(self, database: Database) -> None:
        for question in _questions(database):
            _try(lambda: self._answer(database, question))  # noqa: B023

    async def retry_all(self) -> None:
        """Retry what has not succeeded, parents and children alike, as soon as that is allowed."""
        for _ in range(3):
            refused = await self._machine.visit("settler", self._retry_all)
            if not refused:
                return
            # What was begun may still be under way.
            await asyncio.sleep(20.0)

    def _retry_all(self, database: Database) -> int:
        with database.connect("reader") as connection:
            found = connection.query(
                "SELECT id FROM tasks AS t WHERE status IN ('failed', 'canceled') AND NOT EXISTS"
                " (SELECT 1 FROM tasks AS other WHERE other.retry_of = t.id) ORDER BY id"
            )
        refused = 0
        for (task_id,) in found:
            # Some children by themselves: most are taken up by their parents' retries.
            if self._machine.loop.chance.random() < 0.3:
                continue
            try:
                answer = self._retry(database, task_id)
            except RefusedError as error:
                self._machine.tell("settler", f"retry: refused: {error}")
                refused += 1
                continue
            self._machine.result.happened["person: retry"] += answer.is_changed
            self._machine.tell("settler", f"retry: {answer.message}")
        return refused

    def _retry(self, database: Database, task_id: str) -> CommandResult:
        """Retry a task, every second time on a version that was just edited."""
        operator, chance = self.operator(database), self._machine.loop.chance
        if chance.random() < 0.5:
            return operator.retry(task_id)
        self._edit(database, task_id)
        try:
            answer = operator.retry(task_id, is_latest=True)
        except RefusedError as error:
            if "do not fit" not in str(error):
                raise
            self._machine.result.happened["person: newest version refused"] += 1
            self._machine.tell("settler", f"retry: {error}")
            return operator.retry(task_id)
        self._machine.result.happened["person: retry on the newest version"] += answer.is_changed
        return answer

    def _edit(self, database: Database, task_id: str) -> None:
        """Record another version of a task's workflow."""
        with database.connect("writer") as connection, connection.transaction():
            ((name,),) = connection.query(
                "SELECT workflow_name FROM tasks WHERE id = :id", id=task_id
            )
            if name not in self._machine.graphs:
                return
            known = workflow_versions.latest_number(connection, name) or 0
            graph = newer(self._machine.graphs[name], known + 1, self._machine.loop.chance)
            now = self._machine.clock.now()
            workflow_versions.register(connection, name, graph.hash, graph.text, None, None, now)

    async def fork_after_answers(self) -> None:
        """Run some tasks again from behind an answer, which was not given for another line."""
        await self._machine.visit("settler", self._fork_after_answers)

    def _fork_after_answers(self, database: Database) -> None:
        with database.connect("reader") as connection:
            found = connection.query(
                "SELECT t.id, t.workflow_name, s.name FROM steps AS s"
                " JOIN tasks AS t ON t.id = s.task_id WHERE s.kind IN ('approval', 'input')"
                " AND s.status = 'succeeded' ORDER BY t.id, s.\"index\""
            )
        # By name: the task may be of a newer version, in which every step has another index.
        behind = [
            (task_id, workflow, step.name)
            for task_id, workflow, name in found
            for step in self._machine.graphs[workflow].steps
            if name in step.depends_on
        ]
        if not behind:
            return
        answer = self._fork_from(database, *self._machine.loop.chance.choice(behind))
        self._machine.result.happened["person: fork after an answer"] += 1
        self._machine.tell("settler", f"fork: {answer}")

    async def settle(self) -> list[str]:
        """Answer everything that is waited for, and return what is still open."""
        found: list[str] = await self._machine.visit("settler", self._settle)
        return found

    def _settle(self, database: Database) -> list[str]:
        operator = self.operator(database)
        with database.connect("reader") as connection:
            tasks = connection.query(
                "SELECT id, status, pause_kind, next_wake_time FROM tasks"
                " WHERE status NOT IN ('succeeded', 'failed', 'canceled') ORDER BY id"
            )
            waiting = connection.query(
                "SELECT task_id, waiting_on FROM steps WHERE status = 'waiting' ORDER BY id"
            )
            # No parent waits for them: they must have been cancelled.
            orphans = set(task_rows.orphans(connection))
        open_ids = {row[0] for row in tasks} - orphans
        for task_id, status, pause_kind, _ in tasks:
            if status == "paused" and task_id not in orphans:
                _try(lambda: self._go_on(database, task_id, pause_kind))  # noqa: B023
        for task_id, waiting_on in waiting:
            on = waits.parse(waiting_on)
            if isinstance(on, Signal) and task_id in open_ids:
                _try(lambda: operator.signal(task_id, on.name, None))  # noqa: B023
        for question in _questions(database):
            if question[3] not in orphans:
                _try(lambda: self._answer(database, question))  # noqa: B023
        return [
            f"task {task_id} is {status}, woken at {wake}" for task_id, status, _, wake in tasks
        ]

    def _go_on(self, database: Database, task_id: str, pause_kind: str | None) -> object:
        operator = self.operator(database)
        if pause_kind == PauseKind.BUDGET:
            # A task above may be the one whose budget is used up, or a step.
            for step in self._steps_with_budgets(task_id, database):
                _try(lambda: budget_pause.raise_budget(operator, task_id, step=step, tokens=PLENTY))  # noqa: B023
            return budget_pause.raise_budget(operator, task_id, tokens=PLENTY)
        return operator.resume(task_id)

    def _steps_with_budgets(self, task_id: str, database: Database) -> list[str]:
        with database.connect("reader") as connection:
            ((name,),) = connection.query(
                "SELECT workflow_name FROM tasks WHERE id = :id", id=task_id
            )
        return [step.name for step in self._machine.graphs[name].steps if step.budget]


def _questions(database: Database) -> list[tuple[Any, ...]]:
    with database.connect("reader") as connection:
        return connection.query(
            "SELECT id, kind, request, task_id FROM approvals WHERE status = 'pending' ORDER BY id"
        )


def _try(command: Callable[[], object]) -> None:
    """Do something that may have become impossible since the last check."""
    try:
        command()
    except (RefusedError, NotFoundError):
        return
