"""The checks of `agent doctor` on libraries that only some configurations need."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.config.settings import Settings


def library_checks(settings: "Settings") -> Iterator[tuple[str, str, str]]:
    """Yield (what, state, message) for each library that the configuration needs and that is missing."""
    users = {
        "openai": [name for name, model in settings.models.items() if model.provider == "openai"],
        "mcp": list(settings.mcp),
    }
    for library, names in users.items():
        if names and find_spec(library) is None:
            what = "models" if library == "openai" else "mcp"
            who = ", ".join(names)
            yield what, "error", f"{who}: needs a library: `python -m pip install {library}`"
