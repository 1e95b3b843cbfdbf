"""The environment of programs: commands of steps and watchers, MCP servers, commands of `exec:NAME`.

The agent's own environment holds the secrets that `env:NAME` refers to, and a program's output is
recorded. So a program gets only a short list of names that nearly every program needs, the names that
the step or the configuration passes on, and the values that the step sets.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Final

from agent.steps.process.processes import marks, watcher_marks

BASIC: Final = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"})
"""The variables that every program inherits, besides those of the locale (`LC_*`)."""


def environment_of(
    step_id: str, attempt: int, own: Mapping[str, str], inherit: Iterable[str] = ()
) -> dict[str, str]:
    """Return the environment of a program that an attempt starts.

    The marks come last: they identify orphans, so nothing may replace them.
    """
    return {**inherited(inherit), **own, **marks(step_id, attempt)}


def environment_of_watcher(own: Mapping[str, str], inherit: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of a program that a watcher starts, or a reference to a secret."""
    return {**inherited(inherit), **own, **watcher_marks()}


def inherited(inherit: Iterable[str] = ()) -> dict[str, str]:
    """Return the part of the agent's own environment that every program gets."""
    inheritable = BASIC | set(inherit)
    return {
        name: value
        for name, value in os.environ.items()
        if name in inheritable or name.startswith("LC_")
    }
