"""Steps that are claimed and wait for values from a store outside the database."""

from collections.abc import Collection
from dataclasses import dataclass

from agent.store.artifacts.artifact_rows import FetchedValues
from agent.tasks.rules.settlement import Claim, claim_on
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow


@dataclass(frozen=True, slots=True, eq=False)
class Unfetched:
    """A claimed step whose attempt cannot be prepared yet."""

    locked: LockedTask
    step: StepRow
    is_alone: bool
    missing: frozenset[str]
    """The addresses of what it needs."""

    @property
    def claim(self) -> Claim:
        """The claim under which it waits."""
        return claim_on(self.step)


class WaitingRoom:
    """Those steps, with what was fetched for them.

    The database's thread changes it; the worker's loop reads `steps`, which is replaced as a whole.
    """

    def __init__(self) -> None:
        self.steps: tuple[Unfetched, ...] = ()
        self.fetched = FetchedValues()

    @property
    def wanted(self) -> set[str]:
        """The addresses of what is still to be fetched."""
        contents = self.fetched.contents
        return {address for address in self._missing if address not in contents}

    @property
    def _missing(self) -> set[str]:
        """The addresses of all that the steps need, fetched or not."""
        return {address for each in self.steps for address in each.missing}

    def add(self, locked: LockedTask, step: StepRow, *, is_alone: bool) -> None:
        """Let a step wait for what was missing when its attempt was prepared last."""
        waiting = Unfetched(locked, step, is_alone, frozenset(self.fetched.missing))
        self.steps = (*self.steps, waiting)

    def supply(self, address: str, content: bytes | None) -> list[Unfetched]:
        """Take a value that was fetched; return the steps that have all they need now."""
        contents = self.fetched.contents
        contents[address] = content
        return self._remove([each for each in self.steps if each.missing <= contents.keys()])

    def abandon(self, step_ids: Collection[str]) -> list[Unfetched]:
        """Let go of steps whose claims are gone, or that must stop."""
        return self._remove([each for each in self.steps if each.step.id in step_ids])

    def tidy(self) -> None:
        """Drop what was fetched for attempts that are prepared."""
        if self.fetched.contents:
            needed = self._missing
            kept = {name: each for name, each in self.fetched.contents.items() if name in needed}
            self.fetched.contents = kept

    def clear(self) -> None:
        """Forget everything: the claims are another worker's."""
        self.steps, self.fetched = (), FetchedValues()

    def _remove(self, gone: list[Unfetched]) -> list[Unfetched]:
        self.steps = tuple(each for each in self.steps if each not in gone)
        return gone
