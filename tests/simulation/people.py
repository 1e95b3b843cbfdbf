"""The people of a run: operators who interfere, and one who in the end gives all that is waited for."""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agent.approvals import answering
from agent.approvals.answering import InvalidAnswerError
from agent.approvals.permission import NotAllowedError
from agent.store.database import Database, StoreError
from agent.tasks import allowance
from agent.tasks.operator import NotFoundError, Operator, RefusedError
from tests.simulation.scenario import JsonObject

if TYPE_CHECKING:
    from tests.simulation.run import _Machine

ENDED = ("succeeded", "failed", "canceled")
PLENTY = 1_000_000


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
        """Tell what was delivered under one key and became several tasks."""
        return [f"{key} became {ids}" for key, ids in self._by_key.items() if len(ids) > 1]

    def operator(self, database: Database) -> Operator:
        """Return an operator at a process's terminal."""
        return Operator(database, self._machine.clock)

    async def operate(self, operation: JsonObject) -> None:
        """Do one thing to one task, and again if nobody can tell whether it was done."""
        await asyncio.sleep(operation["at"])
        for _ in range(3):
            try:
                said = await self._machine.visit("operator", self._command(operation))
            except (RefusedError, NotFoundError, NotAllowedError, InvalidAnswerError) as error:
                self._machine.tell("operator", f"{operation['do']}: refused: {error}")
                return
            except StoreError as error:
                self._machine.tell("operator", f"{operation['do']}: {error}")
                await asyncio.sleep(1.0)
                continue
            self._machine.tell("operator", f"{operation['do']}: {said}")
            return

    def _command(self, operation: JsonObject) -> Callable[[Database], object]:
        word, number = operation["do"], operation["task"]

        def command(database: Database) -> object:
            task_id = self._tasks.get(number) if number >= 0 else _child(database)
            if task_id is None:
                return "no such task yet"
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
                    return operator.signal(task_id, "go", {"from": "somebody"}).message
                case "fork":
                    step = self._machine.scenario.graphs[0]["steps"][0]["name"]
                    return operator.fork(task_id, step, dedupe_key=f"fork of {task_id}").message
                case _:
                    return self._answer_some(database)

        return command

    def _answer_some(self, database: Database) -> str:
        chance = self._machine.loop.chance
        asked = _questions(database)
        if not asked:
            return "nobody asks"
        question = chance.choice(asked)
        if question[1] == "approval" and chance.random() < 0.3:
            return self._say(database, question, "deny")
        said = self._answer(database, question)
        try:
            # A second tap on the same button.
            self._answer(database, question)
        except RefusedError:
            return said
        raise AssertionError(f"approval {question[0]} was decided twice")

    def _answer(self, database: Database, question: tuple[Any, ...]) -> str:
        _, kind, request = question
        if kind in ("approval", "tool"):
            return self._say(database, question, "approve")
        if kind == "input":
            return self._say(database, question, "answer", "a text")
        return self._say(database, question, "answer", self._truth(database, request))

    def _say(
        self, database: Database, question: tuple[Any, ...], word: Any, value: Any = None
    ) -> str:
        clock = self._machine.clock
        given = {"by": "ann", "channel": "terminal", "clock": clock, "value": value}
        return answering.answer(database, question[0], word, **given).message

    def _truth(self, database: Database, request: str) -> str:
        """Say of an effect whether it happened, after a look at the world."""
        asked = json.loads(request)
        given = (asked["request"] or {}).get("arguments")
        if given is not None:
            was_used = self._machine.world.by_use[(given["task"], given["number"])] > 0
            return "done" if was_used else "retry"
        call_id = asked["call"]
        with database.connect("reader") as connection:
            ((remote_key,),) = connection.query(
                "SELECT remote_key FROM tool_calls WHERE id = :id", id=call_id
            )
        return "done" if self._machine.world.has_seen(remote_key) else "retry"

    async def attend(self) -> None:
        """Answer whatever is asked, as long as things go wrong."""
        while not self._machine.is_calm:
            await asyncio.sleep(self._machine.loop.chance.uniform(0.5, 3.0))
            try:
                await self._machine.visit("attendant", self._answer_all)
            except StoreError as error:
                self._machine.tell("attendant", str(error))

    def _answer_all(self, database: Database) -> None:
        for question in _questions(database):
            _try(lambda: self._answer(database, question))  # noqa: B023

    async def settle(self) -> list[str]:
        """Give everything that is waited for, and return what is still open."""
        found: list[str] = await self._machine.visit("settler", self._settle)
        return found

    def _settle(self, database: Database) -> list[str]:
        operator = self.operator(database)
        with database.connect("reader") as connection:
            tasks = connection.query(
                "SELECT id, status, pause_reason, next_wake_time FROM tasks"
                " WHERE status NOT IN ('succeeded', 'failed', 'canceled') ORDER BY id"
            )
            waiting = connection.query(
                "SELECT task_id, waiting_on FROM steps WHERE status = 'waiting' ORDER BY id"
            )
        open_ids = {row[0] for row in tasks}
        for task_id, status, reason, _ in tasks:
            if status == "paused":
                _try(lambda: self._go_on(operator, task_id, reason))  # noqa: B023
        for task_id, waiting_on in waiting:
            name = json.loads(waiting_on or "{}").get("signal")
            if name is not None and task_id in open_ids:
                _try(lambda: operator.signal(task_id, name, None))  # noqa: B023
        for question in _questions(database):
            _try(lambda: self._answer(database, question))  # noqa: B023
        return [
            f"task {task_id} is {status}, woken at {wake}" for task_id, status, _, wake in tasks
        ]

    def _go_on(self, operator: Operator, task_id: str, reason: str | None) -> object:
        if reason is not None and reason.startswith("budget"):
            # A task above may be the one whose budget is used up.
            return allowance.raise_budget(operator, task_id, tokens=PLENTY)
        return operator.resume(task_id)


def _questions(database: Database) -> list[tuple[Any, ...]]:
    with database.connect("reader") as connection:
        return connection.query(
            "SELECT id, kind, request FROM approvals WHERE status = 'pending' ORDER BY id"
        )


def _child(database: Database) -> str | None:
    with database.connect("reader") as connection:
        found = connection.query(
            "SELECT id FROM tasks WHERE parent_task_id IS NOT NULL ORDER BY id LIMIT 1"
        )
    return str(found[0][0]) if found else None


def _try(command: Callable[[], object]) -> None:
    """Do something that may have become needless since one looked."""
    try:
        command()
    except (RefusedError, NotFoundError):
        return
