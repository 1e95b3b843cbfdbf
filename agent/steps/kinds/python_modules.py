"""Finding the functions of `python` steps: beside the workflow file, then among what is installed.

A file beside the workflow is loaded under a name of its own, so that two workflows may both have a
`steps.py`, and again whenever it has changed.
"""

import importlib
import importlib.util
import inspect
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from agent.core.ids import content_hash
from agent.steps.attempt.containment import describe_exception
from agent.steps.types.errors import DefiniteFailure


@dataclass(slots=True)
class Function:
    """A step's function and what its signature asks for."""

    name: str
    """As the definition names it: `module:function`."""
    function: Callable[..., Any]
    is_async: bool
    takes_context: bool
    signature: inspect.Signature | None
    _fitting: set[frozenset[str]] = field(default_factory=set)

    def check(self, call: str, names: frozenset[str]) -> None:
        """Refuse arguments that the function does not take, before anything runs."""
        if self.signature is None or names in self._fitting:
            return
        given = dict.fromkeys(names)
        if self.takes_context:
            given["ctx"] = None
        try:
            self.signature.bind(**given)
        except TypeError as problem:
            raise _refused(f"{call} does not fit the keys under with: {problem}") from None
        self._fitting.add(names)


_Stamp = tuple[int, int, int]
_loaded: dict[Path, tuple[_Stamp, ModuleType]] = {}
_loading: dict[Path, threading.Lock] = {}
_functions: dict[tuple[str, str | None], tuple[ModuleType, Function]] = {}


def find_loaded(call: str, source_path: str | None) -> Function | None:
    """Return the function that `module:function` names, if that runs no code of its module."""
    module: ModuleType | None = None
    for path in _candidates(call.partition(":")[0], source_path) if source_path is not None else ():
        stamp = _stamp(path)
        if stamp is not None:
            known = _loaded.get(path)
            if known is None or known[0] != stamp:
                return None
            module = known[1]
            break
    if module is None:
        module = sys.modules.get(call.partition(":")[0])
    # Another thread may be about to import it.
    if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
        return None
    return _described(call, source_path, module)


def find(call: str, source_path: str | None) -> Function:
    """Return the function that `module:function` names, or say why there is none.

    This may run the module's code. Any thread may call it.
    """
    module = _beside(call, source_path) if source_path is not None else None
    if module is None:
        module = _installed(call, source_path)
    return _described(call, source_path, module)


def _described(call: str, source_path: str | None, module: ModuleType) -> Function:
    known = _functions.get((call, source_path))
    if known is not None and known[0] is module:
        return known[1]
    function = _describe(call, module, call.partition(":")[2])
    _functions[(call, source_path)] = (module, function)
    return function


def _beside(call: str, source_path: str) -> ModuleType | None:
    name = call.partition(":")[0]
    for path in _candidates(name, source_path):
        stamp = _stamp(path)
        if stamp is None:
            continue
        # One lock per file: a module that hangs while it loads must not delay the others.
        with _loading.setdefault(path, threading.Lock()):
            known = _loaded.get(path)
            if known is not None and known[0] == stamp:
                return known[1]
            module = _load(call, path, Path(source_path).parent)
            _loaded[path] = (stamp, module)
            return module
    return None


def _stamp(path: Path) -> _Stamp | None:
    """Return what changes with a file's content; None without a regular file."""
    try:
        status = path.stat()
    except OSError:
        return None
    # A device may have no end, and what a FIFO holds may come from another user.
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def is_there(call: str, source_path: str) -> bool:
    """Whether a module can be found, as far as that is known without running any of it."""
    name = call.partition(":")[0]
    first = name.partition(".")[0]
    try:
        if any(path.is_file() for path in _candidates(name, source_path)):
            return True
        return first in sys.modules or importlib.util.find_spec(first) is not None
    except (ImportError, ValueError, OSError):
        return False


@lru_cache(maxsize=1024)
def _candidates(name: str, source_path: str) -> tuple[Path, Path]:
    """Return where a module may be; kept, since this is asked at every attempt."""
    base = Path(source_path).parent.joinpath(*name.split("."))
    return base.with_name(base.name + ".py"), base / "__init__.py"


def _load(call: str, path: Path, directory: Path) -> ModuleType:
    name = call.partition(":")[0]
    # Its neighbours must be importable; at the end, so that they hide nothing that is installed.
    if str(directory.resolve()) not in sys.path:
        sys.path.append(str(directory.resolve()))
    unique = f"_workflow_{content_hash(str(path.resolve()))[:12]}.{name}"
    module = ModuleType(unique)
    module.__file__ = str(path)
    if path.name == "__init__.py":
        module.__path__ = [str(path.parent)]
    before = sys.modules.get(unique)
    sys.modules[unique] = module
    try:
        # Compiled here: Python's own cache tells files apart by whole seconds only.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)  # noqa: S102
    except BaseException as problem:
        if before is not None:
            sys.modules[unique] = before
        else:
            del sys.modules[unique]
        text = f"{call}: {path.name} cannot be loaded: {describe_exception(problem)}"
        raise DefiniteFailure(text, code="import_failed", kind="code", may_retry=False) from problem
    return module


def _installed(call: str, source_path: str | None) -> ModuleType:
    name = call.partition(":")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not (
            name == problem.name or name.startswith(problem.name + ".")
        ):
            raise _unloadable(call, problem) from problem
        where = "among what is installed"
        if source_path is not None:
            where = f"neither beside {Path(source_path).name} nor {where}"
        else:
            where = f"not {where}"
        raise _refused(f"the module {name!r} is {where}") from None
    except BaseException as problem:
        raise _unloadable(call, problem) from problem


def _describe(call: str, module: ModuleType, attribute: str) -> Function:
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise _refused(f"{call}: there is no function {attribute!r} in that module")
    is_async = inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(
        getattr(found, "__call__", None)  # noqa: B004 - an object with an async __call__
    )
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return Function(call, found, is_async, False, None)
    return Function(call, found, is_async, "ctx" in signature.parameters, signature)


def _unloadable(call: str, problem: BaseException) -> DefiniteFailure:
    text = f"{call}: the module {call.partition(':')[0]!r} cannot be loaded: {describe_exception(problem)}"
    return DefiniteFailure(text, code="import_failed", kind="code", may_retry=False)


def _refused(message: str) -> DefiniteFailure:
    return DefiniteFailure(message, code="bad_function", kind="input", may_retry=False)
