"""The registry of step kinds: the language knows each by its name and the model of its keys.

Kinds live in a higher layer and register themselves when they are imported, so that the language
checks their configuration without importing what runs them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from pydantic import BaseModel

from agent.workflows.graph import OnUnknown

PLANNED: Final = ("llm", "agent", "approval", "input", "worker")
"""Kinds of the language: where one is not registered, that is told apart from a spelling mistake."""


@dataclass(frozen=True, slots=True)
class KindSpec:
    """What the language needs to know of a kind."""

    name: str
    model: type[BaseModel]
    """Checks the keys under the kind's name, once templates are rendered."""
    description: str = ""
    default_on_unknown: OnUnknown = "retry"
    short_key: str | None = None
    """Where a value goes that is written without keys: `wait: 5m` is `wait: {duration: 5m}`."""
    verbatim: frozenset[tuple[str, ...]] = frozenset()
    """Keys in which nothing is rendered, as in `{("script",)}`."""
    expressions: Mapping[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    """Verbatim keys that hold an expression, each with the names that are known only there."""
    example: str | None = None
    """How it is written, for whoever gave no keys to a kind that has no short form."""


_specs: dict[str, KindSpec] = {}


def register(spec: KindSpec) -> KindSpec:
    """Make a kind known; registering the same name again replaces it."""
    _specs[spec.name] = spec
    return spec


def spec_of(name: str) -> KindSpec:
    """Return a kind by its name, or raise `KeyError`."""
    return _specs[name]


def registered() -> Mapping[str, KindSpec]:
    """Return all kinds by name, in the order in which they registered; a live view."""
    return MappingProxyType(_specs)
