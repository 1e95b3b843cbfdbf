"""The registry of step kinds: each has a name and a model of its keys.

Kinds are in a higher layer and register themselves on import, so that the compiler checks their
configuration without importing the code that runs them. They are imported when they are first asked for:
what is known must not depend on which modules a process has imported before.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from agent.core.quick_classes.quick_dataclasses import dataclass, field
from agent.workflows.graph import OnUnknown

if TYPE_CHECKING:
    from pydantic import BaseModel

    from agent.core.quick_classes import quick_models

    AnyModel = BaseModel | quick_models.BaseModel

PLANNED: Final = ("llm", "agent", "approval", "input")
"""Kinds of the language: one that is not registered gets another message than a spelling mistake."""


@dataclass(frozen=True, slots=True)
class KindSpec:
    """The facts about a kind that the compiler needs."""

    name: str
    load_model: "Callable[[], type[AnyModel]]"
    """Imports and returns the model; a file is checked without the models of kinds that it does not use."""
    description: str = ""
    default_on_unknown: OnUnknown = "retry"
    short_key: str | None = None
    """The key of a value that is written without one: `wait: 5m` is `wait: {duration: 5m}`."""
    verbatim: frozenset[tuple[str, ...]] = frozenset()
    """Keys in which nothing is rendered, as in `{("script",)}`."""
    expressions: Mapping[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    """Verbatim keys that hold an expression, each with the names that are known only there."""
    example: str | None = None
    """How it is written, for the message about a kind without a mapping of keys."""
    retry: Mapping[str, float] = field(default_factory=dict)
    """The keys of `retry` whose defaults differ for this kind."""

    @property
    def model(self) -> "type[AnyModel]":
        """Checks the keys under the kind's name, once templates are rendered."""
        return self.load_model()


_specs: dict[str, KindSpec] = {}


def register(spec: KindSpec) -> KindSpec:
    """Make a kind known; registering the same name again replaces it."""
    _specs[spec.name] = spec
    return spec


def registered() -> Mapping[str, KindSpec]:
    """Return all kinds by name, in the order in which they registered; a live view."""
    # By its name: this layer does not know that one.
    import_module("agent.steps.spec.registry")
    return MappingProxyType(_specs)
