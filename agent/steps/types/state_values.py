"""Values of `state` as steps read and write them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from agent.core.plain_json import Json
from agent.core.state_names import StateKey
from agent.store.db.json_values import decode


class Version(int):
    """The version of a value, to compare with: 0 if it was never written."""


@dataclass(frozen=True, slots=True)
class StateValue:
    """A value at one version; without a text there is none: never written, or deleted."""

    version: int = 0
    text: str | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a value."""
        return self.text is not None

    @property
    def value(self) -> Json:
        """The value; None where there is none."""
        return decode(self.text)


ABSENT = StateValue()
"""A value that was never written."""

StateValues = Mapping[StateKey, StateValue]


@dataclass(slots=True, eq=False)
class StateChange:
    """The values that a succeeded step writes to `state` when it is settled."""

    writes: dict[StateKey, str]
    """The new values as JSON."""
    reads: dict[StateKey, int]
    """The versions that they were computed from: if one has moved, they are computed again."""
    render: Callable[[StateValues], dict[StateKey, str]]
    """Computes them from other values; raises `DefiniteFailure`. The step's effect is not repeated."""
    is_small: bool = True
    """Whether the event loop may compute them."""
    conflicts: int = 0
    """How often they were computed again."""

    @property
    def keys(self) -> set[StateKey]:
        """The values that it reads or writes."""
        return self.writes.keys() | self.reads.keys()


@dataclass(slots=True, eq=False)
class StateOperation:
    """An operation of a step's code on one value, and the answer once it is recorded."""

    kind: Literal["get", "set", "compare_and_set", "delete"]
    key: StateKey
    text: str | None = None
    """The new value as JSON."""
    expected_version: int | None = None
    expected_text: str | None = None
    """Of `compare_and_set` without a version: the value that must be current; None is no value."""
    answer: Json = None
    refusal: str | None = None
    """Why the value cannot be written."""
