"""`state` under chance: several workers, conflicts, deaths and people; every write counts once.

Each run is drawn from a seed: which worker claims, in which batches outcomes arrive, which worker dies
with outcomes in its hands, and when a person sets a value.
"""

import random
from typing import Any

import pytest

from agent.core.ids import new_id
from agent.core.state_names import StateKey
from agent.steps.attempt.recorded_calls.intents import StoredBody, new_intent
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_types import NumberedRequest, Request
from agent.steps.types.state_values import StateOperation
from agent.store.db.database import Database
from agent.store.engine import workers
from agent.tasks.commit.batch import Batch, Completion, JournalEntry
from agent.tasks.operator.state_commands import set_value
from agent.tasks.rescue.rescue_steps import take_over
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.worker.attempts import claim_of
from agent.tasks.worker.state_conflicts import render_again
from agent.workflows.compile.compiler import compile_text
from tests.support.engine import Engine, Hand, Start
from tests.support.state_attempts import completion_of

COUNTER: StateKey = ("workflow:counted", "counter")
CODED: StateKey = ("workflow:counted", "coded")
GRAPH = compile_text(
    """
name: counted
steps:
  count:
    python: {call: "tests.support.step_functions:noop"}
    retry: {max_attempts: 100, delay: 0s}
    set_state: {counter: "{{ state.counter | default(0) + 1 }}", last: "{{ task.id }}"}
"""
)
TASKS = 24


class Walk:
    """One run drawn from a seed."""

    def __init__(self, database: Database, seed: int) -> None:
        self.chance = random.Random(seed)
        self.database = database
        self.hands = [Hand(database, slots=8) for _ in range(3)]
        self.queued: dict[Hand, list[Completion]] = {hand: [] for hand in self.hands}
        self.coded = 0
        """How often compare-and-set was answered with success."""

    def run(self) -> int:
        """Run all tasks to their ends; return how many have succeeded."""
        self.hands[0].submit(*[GRAPH] * TASKS, slots=0)
        for _ in range(2000):
            hand = self.chance.choice(self.hands)
            getattr(self, self.chance.choice(["claim", "claim", "settle", "settle", "cas", "die"]))(
                hand
            )
            if self._open() == 0:
                return TASKS
        raise AssertionError("it does not end")

    def close(self) -> None:
        """Close the connections."""
        for hand in self.hands:
            hand.close()

    def _open(self) -> int:
        ((count,),) = self.hands[0].rows("SELECT count(*) FROM tasks WHERE status <> 'succeeded'")
        return int(count)

    def claim(self, hand: Hand) -> None:
        """Claim some steps; their attempts end at once, and their outcomes wait."""
        for claimed in hand.commit(slots=self.chance.randint(1, 6)).attempts:
            self.queued[hand].append(completion_of(claimed))

    def settle(self, hand: Hand) -> None:
        """Commit some outcomes; what is in conflict is rendered again."""
        queue = self.queued[hand]
        self.chance.shuffle(queue)
        count = self.chance.randint(0, len(queue))
        batch, self.queued[hand] = Batch(completions=queue[:count]), queue[count:]
        if count == 0:
            return
        done = hand.commit(batch, slots=0)
        again = [*render_again(done.result), *done.result.carried_completions]
        self.queued[hand] += again

    def cas(self, hand: Hand) -> None:
        """Count up by compare-and-set under the claim of a running step."""
        if not hand.running:
            return
        claimed = self.chance.choice(list(hand.running.values()))
        ((version, value),) = self._current(CODED)
        stale = self.chance.random() < 0.3
        operation = StateOperation("compare_and_set", CODED, str(value + 1))
        operation.expected_version = version - stale
        done = hand.commit(Batch(entries=[_entry(claimed, operation, self.chance)]), slots=0)
        ((_, is_recorded),) = done.result.journaled
        if is_recorded and operation.answer["written"]:
            self.coded += 1
            assert not stale

    def _current(self, key: StateKey) -> list[tuple[int, int]]:
        found = self.hands[0].rows(
            "SELECT version, value FROM state_values WHERE scope = :scope AND name = :name",
            scope=key[0],
            name=key[1],
        )
        return [(version, int(value)) for version, value in found] or [(0, 0)]

    def die(self, hand: Hand) -> None:
        """Lose a worker with everything in its hands; the others take over its steps."""
        if self.chance.random() < 0.7:
            return
        dead = hand.committer.worker_id
        with self.database.connect("writer") as connection:
            with connection.transaction():
                tx_number = hand.committer.session.tx_number
                workers.declare_dead(connection, dead, tx_number, hand.clock.now())
            take_over(
                connection,
                GraphCache(),
                hand.clock,
                [dead],
                is_process_gone=True,
                has_crashed=False,
            )
        hand.committer.enroll()
        hand.running.clear()
        self.queued[hand] = []


def _entry(claimed: AttemptInput, operation: StateOperation, chance: random.Random) -> JournalEntry:
    number = chance.randrange(1, 2**40)
    request = Request("state.compare_and_set", {"n": number}, "ask", 0)
    action = f"state.compare_and_set#{number}"
    numbered = NumberedRequest(request, number, action, "{}", new_id())
    intent = new_intent(claimed, numbered, StoredBody({"n": number}, None), None, 0)
    return JournalEntry(claim_of(claimed), claimed.graph, intent=intent, state=operation)


@pytest.mark.parametrize("seed", range(6))
def test_every_write_counts_once_whatever_workers_do(checked: Database, seed: int) -> None:
    """The counter is the number of succeeded steps, and the coded one that of won swaps."""
    walk = Walk(checked, seed)
    try:
        succeeded = walk.run()
        counter, coded = walk._current(COUNTER), walk._current(CODED)
    finally:
        walk.close()
    assert counter == [(succeeded, succeeded)]
    assert coded == [(walk.coded, walk.coded)]


def test_workers_and_people_write_beside_each_other(start: Start, checked: Database) -> None:
    """Real workers count while a person sets other values; nothing is lost and nothing waits."""
    engines = [start() for _ in range(1 if checked.is_sqlite else 3)]
    graph: Any = compile_text(
        """
name: counted
steps:
  count:
    python: {call: "tests.support.state_functions:act", with: {token: beside}}
    set_state: {counter: "{{ state.counter | default(0) + 1 }}"}
  swap:
    python: {call: "tests.support.state_functions:count_up", with: {name: coded}}
"""
    )
    tasks = [_submit(engines[n % len(engines)], graph) for n in range(30)]
    for number in range(20):
        set_value(checked, checked.clock, ("shared", "beside"), number)
    for task_id in tasks:
        document = engines[0].wait(task_id, "succeeded", "failed")
        assert document["status"] == "succeeded", document["error"]
    rows = engines[0].rows("SELECT name, version, value FROM state_values ORDER BY name")
    assert rows == [("beside", 20, "19"), ("coded", 30, "30"), ("counter", 30, "30")]


def _submit(engine: Engine, graph: Any) -> str:
    return engine.submit(graph)
