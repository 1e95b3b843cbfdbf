"""The names of values in `state`: their scopes, what a name may be, and the limits."""

import re
from typing import Final

SHARED: Final = "shared"
"""The scope of values that all workflows share."""
_WORKFLOW: Final = "workflow:"

MAX_VALUE_BYTES: Final = 65_536
"""The largest value, as JSON."""
MAX_NAMES: Final = 1_000
"""How many values one scope may have."""
MAX_EVER_NAMES: Final = 10_000
"""How many names one scope may ever have used: a deleted one keeps its version."""
KEPT_VERSIONS: Final = 100
"""How many versions of a value the history keeps."""
MAX_CONFLICTS: Final = 20
"""How often `set_state` is rendered again because a value that it reads has changed."""

RESERVED: Final = frozenset({"get", "items", "keys", "values"})
"""Names that templates read as methods of `state` itself."""
_NAME: Final = r"[a-z_][a-z0-9_]{0,99}"

StateKey = tuple[str, str]
"""A value by its scope and its name."""


def workflow_scope(workflow: str) -> str:
    """Return the scope of the values of one workflow."""
    return _WORKFLOW + workflow


def workflow_of(scope: str) -> str | None:
    """Return the workflow whose values a scope holds; None if all workflows share them."""
    return scope.removeprefix(_WORKFLOW) if scope.startswith(_WORKFLOW) else None


def find_name_problem(name: str) -> str | None:
    """Return why a text cannot name a value; None if it can."""
    if name in RESERVED:
        return f"{name!r} is reserved: templates would read it as a method of state"
    if re.fullmatch(_NAME, name) is None:
        return (
            f"{name!r} is not a name for a value: write up to 100 lower-case letters, digits and _,"
            " beginning with a letter or _"
        )
    return None


def describe_scope(scope: str) -> str:
    """Name a scope in a sentence."""
    workflow = workflow_of(scope)
    return "shared state" if workflow is None else f"the state of workflow {workflow!r}"
