"""The person of a siege: starts tasks, approves, and resolves unknown effects.

Answers are truthful: what the remotes' ledger and the commands' book say, and nothing else. A
verdict is noted before it is given, because the answer to it may be lost in a kill.
"""

import json
import random
import re
import threading
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from tests.siege.household import Api, UnavailableError, patiently
from tests.siege.record import Record
from tests.siege.workload import EXPECTED

_OPEN: Final = frozenset({"pending", "running", "paused"})
_WEIGHTS: Final = {"mixed": 6, "refused": 3, "broken": 2}
_EFFECT: Final = re.compile(r"\b(t[0-9]+/[a-z]+(?:\.[0-9]+)?)")
_LOOK_SECONDS: Final = 0.1


class Person(threading.Thread):
    """Looks after all tasks, in a thread of its own, until asked to finish."""

    def __init__(
        self, api: Api, record: Record, remote: str, book: Path, seed: str, crowd: int
    ) -> None:
        super().__init__(name="person", daemon=True)
        self._api = api
        self._record = record
        self._remote = remote
        self._book = book
        self._seed = seed
        self._crowd = crowd
        self._open: set[str] = set()
        self._count = 0
        self._is_starting = False
        self._is_finishing = threading.Event()
        self.problem: BaseException | None = None

    def finish(self, seconds: float) -> bool:
        """Start nothing more; wait until every task has ended; return whether they did."""
        self._is_finishing.set()
        self.join(seconds)
        return not self.is_alive()

    def run(self) -> None:
        """Start tasks and answer until all that was started has ended."""
        try:
            while not self._is_finishing.is_set() or self._open or self._is_starting:
                try:
                    self._start_more()
                    for task_id in sorted(self._open):
                        self._look_after(task_id)
                except UnavailableError:
                    # An agent that was just killed, or a database: the next round tries again.
                    pass
                time.sleep(_LOOK_SECONDS)
        except BaseException as problem:
            self.problem = problem
            raise

    def _start_more(self) -> None:
        while self._is_starting or (
            len(self._open) < self._crowd and not self._is_finishing.is_set()
        ):
            ticket = f"t{self._count}"
            workflows = list(EXPECTED)
            weights = [_WEIGHTS[name] for name in workflows]
            # The same choice again when the answer was lost: the key must meet the same request.
            chance = random.Random(f"{self._seed} {ticket}")
            (workflow,) = chance.choices(workflows, weights)
            # A task whose answer was lost may exist: it is asked for again, also at the end.
            self._is_starting = True
            task_id = self._api.start(workflow, ticket)
            self._is_starting = False
            self._record.tickets[ticket] = (workflow, task_id)
            self._open.add(task_id)
            self._count += 1

    def _look_after(self, task_id: str) -> None:
        document = self._api.get(f"/tasks/{task_id}")
        if document is None:
            # The judge will miss it.
            self._open.discard(task_id)
            return
        for child in document["children"]:
            if self._attend(self._api.get(f"/tasks/{child}")):
                document["status"] = "running"
        if not self._attend(document):
            self._open.discard(task_id)

    def _attend(self, document: dict[str, Any]) -> bool:
        """Answer the questions of a task; return whether it is still open."""
        for step in document["steps"]:
            waits = step["waiting_on"] or {}
            if "unknown" in waits:
                self._resolve(document["id"], step["name"], waits["unknown"])
            elif "approval" in waits:
                self._record.signed.add(document["input"]["ticket"])
                self._api.post(f"/approvals/{waits['approval']}/approve", {})
        return document["status"] in _OPEN

    def _resolve(self, task_id: str, step: str, call_id: str) -> None:
        """Resolve an unknown effect."""
        calls = self._api.get(f"/tasks/{task_id}/steps/{quote(step)}/calls")["calls"]
        request = next(call["request"] for call in calls if call["id"] == call_id)
        found = _EFFECT.search(json.dumps(request))
        assert found is not None, request
        effect = found[1]
        verdicts = self._record.verdicts[effect]
        if call_id not in verdicts:
            did_happen = self._did_happen(effect)
            happened = "fail" if effect.endswith("/fails") else "done"
            verdicts[call_id] = happened if did_happen else "retry"
        path = f"/tasks/{task_id}/steps/{quote(step)}/resolve"
        self._api.post(path, {"verdict": verdicts[call_id]})

    def _did_happen(self, effect: str) -> bool:
        if self._book.exists() and any(
            line.startswith(f"{effect} ") for line in self._book.read_text().splitlines()
        ):
            return True
        with urllib.request.urlopen(f"{self._remote}/truth?effect={effect}", timeout=60) as answer:
            return bool(json.load(answer)["applied"])


def collect(api: Api, record: Record) -> None:
    """Read every task as the agent shows it in the end."""
    listed = patiently(api.all_tasks, "the list of tasks")
    for task_id in [summary["id"] for summary in listed]:
        document = patiently(partial(api.get, f"/tasks/{task_id}"), "a task")
        record.documents[task_id] = document
        if document["parent"] is None:
            record.started.append((document["input"]["ticket"], task_id))
