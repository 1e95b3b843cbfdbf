"""Modules that are imported when they are first used.

Most commands of the command line use a small part of what their modules name. A function that is the
only user of a module imports it itself; where many functions share one, the module is made lazy::

    if TYPE_CHECKING:
        from agent.tasks.read_models import spending
    else:
        spending = lazy("agent.tasks.read_models.spending")
"""

from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        module = self.__dict__.get("_module")
        if module is None:
            module = self.__dict__["_module"] = import_module(self.__name__)
        return getattr(module, name)


def lazy(name: str) -> ModuleType:
    """Return a module that is imported when an attribute of it is first read."""
    return _LazyModule(name)
