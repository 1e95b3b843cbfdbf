"""Claimed steps on their way to attempts: pending, blocked on a download, or loaded.

A claim is kept here until its inputs are read: its transaction is committed, and sending that again
would leave the claim without an attempt.
"""

from agent.steps.types.attempt_input import AttemptInput
from agent.store.db.database import Connection
from agent.tasks.commit.attempt_inputs import load
from agent.tasks.commit.batch import TxResult
from agent.tasks.commit.blocked_steps import BlockedSteps
from agent.tasks.commit.known_tasks import KnownTasks
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow

ClaimedStep = tuple[LockedTask, StepRow]


class AttemptLoader:
    """Reads the inputs of claimed attempts, outside every transaction."""

    def __init__(self, graphs: GraphCache) -> None:
        self.blocked = BlockedSteps()
        self.is_isolated = False
        """Whether the last claimed step runs isolated."""
        self._graphs = graphs
        self._known = KnownTasks()
        self.pending: list[ClaimedStep] = []
        """Claimed steps whose inputs are not loaded yet."""

    def add(self, result: TxResult) -> None:
        """Take the claims of a committed transaction, and cache the values that it wrote."""
        self._known.learn(result.locked_tasks)
        self.add_claims(result)

    def add_claims(self, result: TxResult) -> None:
        """Take the claims of a committed transaction."""
        if result.claimed:
            self.pending += result.claimed
            self.is_isolated = result.is_isolated

    def load_all(self, connection: Connection) -> list[AttemptInput]:
        """Return the inputs of every pending attempt, and keep none of them."""
        inputs = self._load(connection, self.pending)
        self.pending = []
        return inputs

    def load_one(self, connection: Connection, claimed: ClaimedStep) -> list[AttemptInput]:
        """Return the inputs of one pending attempt, which stays pending."""
        return self._load(connection, [claimed])

    def discard(self, claimed: ClaimedStep) -> None:
        """Drop a pending attempt that was loaded, or has failed."""
        self.pending.remove(claimed)

    def block(self, claimed: ClaimedStep) -> None:
        """Let a pending attempt wait for a download."""
        self.blocked.add(*claimed, is_isolated=self.is_isolated)
        self.pending.remove(claimed)

    def supply(self, address: str, content: bytes | None) -> None:
        """Add a downloaded value; attempts that are complete with it become pending."""
        for blocked in self.blocked.supply(address, content):
            self.pending.append((blocked.locked, blocked.step))
            self.is_isolated = blocked.is_isolated

    def clear(self) -> None:
        """Drop everything: the claims belong to another worker."""
        self.pending = []
        self.blocked.clear()

    def _load(self, connection: Connection, claimed: list[ClaimedStep]) -> list[AttemptInput]:
        return load(connection, claimed, self._known, self._graphs, self.blocked.fetched)
