"""The functions of `python` steps: found beside the workflow file, then among installed modules.

A file beside the workflow is loaded under a unique name, so that two workflows may both have a
`steps.py`. It is loaded again whenever it has changed.
"""

import importlib
import inspect
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from agent.core.ids import content_hash
from agent.steps.kinds.module_files import source_files

if TYPE_CHECKING:
    from agent.steps.types.errors import DefiniteFailure


@dataclass(slots=True)
class Function:
    """A step's function and its signature."""

    name: str
    """Its name in the definition: `module:function`."""
    function: Callable[..., Any]
    is_async: bool
    takes_context: bool
    signature: inspect.Signature | None
    _checked: set[frozenset[str]] = field(default_factory=set)

    def check(self, call: str, names: frozenset[str]) -> None:
        """Refuse arguments that the function does not accept, before anything runs."""
        if self.signature is None or names in self._checked:
            return
        arguments = dict.fromkeys(names)
        if self.takes_context:
            arguments["ctx"] = None
        try:
            self.signature.bind(**arguments)
        except TypeError as error:
            raise _refused(f"{call} does not accept the keys under with: {error}") from None
        self._checked.add(names)


_Stamp = tuple[int, int, int]
_loaded: dict[Path, tuple[_Stamp, ModuleType]] = {}
_loading: dict[Path, threading.Lock] = {}
_functions: dict[tuple[str, str | None], tuple[ModuleType, Function]] = {}


def find_loaded(call: str, source_path: str | None) -> Function | None:
    """Return the function that `module:function` names, if its module is loaded already."""
    module: ModuleType | None = None
    for path in (
        source_files(call.partition(":")[0], source_path) if source_path is not None else ()
    ):
        stamp = _stamp(path)
        if stamp is not None:
            entry = _loaded.get(path)
            if entry is None or entry[0] != stamp:
                return None
            module = entry[1]
            break
    if module is None:
        module = sys.modules.get(call.partition(":")[0])
    # Another thread may be importing it.
    if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
        return None
    return _function_of(call, source_path, module)


def find(call: str, source_path: str | None) -> Function:
    """Return the function that `module:function` names; raise `DefiniteFailure` if there is none.

    This may run the module's code. Any thread may call it.
    """
    module = _load_beside(call, source_path) if source_path is not None else None
    if module is None:
        module = _installed(call, source_path)
    return _function_of(call, source_path, module)


def _function_of(call: str, source_path: str | None, module: ModuleType) -> Function:
    entry = _functions.get((call, source_path))
    if entry is not None and entry[0] is module:
        return entry[1]
    function = _describe(call, module, call.partition(":")[2])
    _functions[(call, source_path)] = (module, function)
    return function


def _load_beside(call: str, source_path: str) -> ModuleType | None:
    name = call.partition(":")[0]
    for path in source_files(name, source_path):
        stamp = _stamp(path)
        if stamp is None:
            continue
        # One lock per file: a module that hangs while it loads must not delay the others.
        with _loading.setdefault(path, threading.Lock()):
            entry = _loaded.get(path)
            if entry is not None and entry[0] == stamp:
                return entry[1]
            module = _load(call, path, Path(source_path).parent)
            _loaded[path] = (stamp, module)
            return module
    return None


def _stamp(path: Path) -> _Stamp | None:
    """Return a value that changes with a file's content; None if it is not a regular file."""
    try:
        status = path.stat()
    except OSError:
        return None
    # A device may have no end, and the data of a FIFO may come from another user.
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _load(call: str, path: Path, directory: Path) -> ModuleType:
    name = call.partition(":")[0]
    # Other modules beside it must be importable; at the end, so that they shadow no installed one.
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
        # Compiled here: Python's own cache compares modification times by whole seconds only.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)  # noqa: S102
    except BaseException as error:
        if before is not None:
            sys.modules[unique] = before
        else:
            del sys.modules[unique]
        from agent.steps.attempt.containment import describe_exception
        from agent.steps.types.errors import DefiniteFailure

        text = f"{call}: {path.name} cannot be loaded: {describe_exception(error)}"
        raise DefiniteFailure(text, code="import_failed", kind="code", may_retry=False) from error
    return module


def _installed(call: str, source_path: str | None) -> ModuleType:
    name = call.partition(":")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise _unloadable(call, error) from error
        where = "not installed"
        if source_path is not None:
            where = f"neither beside {Path(source_path).name} nor installed"
        raise _refused(f"the module {name!r} is {where}") from None
    except BaseException as error:
        raise _unloadable(call, error) from error


def _describe(call: str, module: ModuleType, attribute: str) -> Function:
    function: Any = module
    for part in attribute.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise _refused(f"{call}: there is no function {attribute!r} in that module")
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return Function(call, function, is_async, False, None)
    return Function(call, function, is_async, "ctx" in signature.parameters, signature)


def _unloadable(call: str, error: BaseException) -> "DefiniteFailure":
    from agent.steps.attempt.containment import describe_exception
    from agent.steps.types.errors import DefiniteFailure

    text = f"{call}: the module {call.partition(':')[0]!r} cannot be loaded: {describe_exception(error)}"
    return DefiniteFailure(text, code="import_failed", kind="code", may_retry=False)


def _refused(message: str) -> "DefiniteFailure":
    from agent.steps.types.errors import DefiniteFailure

    return DefiniteFailure(message, code="bad_function", kind="input", may_retry=False)
