"""Loads workflows from files: YAML in the language, JSON as a compiled graph, Python that makes one."""

import importlib.util
import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.core.ids import content_hash
from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.workflows.compile.compiler import compile_source, compile_text
from agent.workflows.diagnostics import Problem, WorkflowError, cut, write_key
from agent.workflows.file_names import SUFFIXES
from agent.workflows.graph import Graph
from agent.workflows.kind_registry import KindSpec
from agent.workflows.step_code import code_hashes
from agent.workflows.yaml.source import MAX_BYTES, Source, read_source


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """A workflow and the file that it came from."""

    path: Path
    graph: Graph
    text: str
    """The file's text, which is recorded as the version's source."""

    @property
    def is_compiled(self) -> bool:
        """Whether the file has a compiled graph, not a workflow in the language."""
        if self.path.suffix != ".json":
            return False
        return not _is_in_language(read_source(str(self.path), self.text.encode()))


class UnexpectedError(WorkflowError):
    """The compiler raised an exception of its own, its `__cause__`: a defect of the agent.

    One such file must not stop the other files or the daemon.
    """

    def __init__(self, path: Path, error: Exception) -> None:
        reason = cut(f"{type(error).__name__}: {error}")
        message = f"internal error while reading this file: {reason}"
        hint = "this is a defect of the agent; please report it with the file"
        super().__init__([Problem(str(path), None, None, "", message, hint)])
        self.__cause__ = error


def load(
    path: Path, kinds: Mapping[str, KindSpec] | None = None, *, is_trusted: bool = False
) -> WorkflowFile:
    """Load a workflow from a file; raise `WorkflowError` with every problem in it.

    A Python file is run for that, with any effect it has: only where it is trusted.
    """
    content = read_content(path)
    if path.suffix == ".py" and not is_trusted:
        raise _refused(path, "a workflow in Python is known only once its file has run")
    try:
        graph = _graph_of(path, content, kinds)
        # Computed here, so that a failure is a problem of this file.
        graph.hash  # noqa: B018
        graph.note_code(code_hashes(graph, path.absolute()))
    except WorkflowError:
        raise
    except Exception as error:
        raise UnexpectedError(path, error) from error
    return WorkflowFile(path, graph, content.decode("utf-8-sig", errors="replace"))


def _graph_of(path: Path, content: bytes, kinds: Mapping[str, KindSpec] | None) -> Graph:
    if path.suffix == ".py":
        return _from_python(path)
    if path.suffix == ".json":
        return _from_json(str(path), content, kinds)
    if path.suffix in SUFFIXES:
        return compile_text(content, str(path), kinds)
    raise _refused(path, f"a workflow file ends in {', '.join(SUFFIXES)}")


def read_content(path: Path) -> bytes:
    """Read a regular file, or raise why it cannot be read."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise _refused(path, "the name of the file is not UTF-8 text") from None
    try:
        # Before it is opened: opening a device or a FIFO can block, and disturbs its writer.
        _check_regular(path, path.stat())
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            _check_regular(path, os.fstat(descriptor))
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, WorkflowError):
            raise
        raise _refused(path, _reason(path, error)) from None
    if len(content) > MAX_BYTES:
        raise _refused(path, f"larger than {MAX_BYTES:,} bytes")
    return content


def _check_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise _refused(path, "cannot be read: it is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, "cannot be read: it is not a regular file")


def _reason(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        is_link = path.is_symlink()
        return "it links to a file that does not exist" if is_link else "there is no such file"
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"


def _refused(path: Path, message: str) -> WorkflowError:
    return WorkflowError([Problem(str(path), None, None, "", message)])


def _from_json(shown: str, content: bytes, kinds: Mapping[str, KindSpec] | None) -> Graph:
    """Read a compiled graph; a workflow whose steps are a mapping is the language, as JSON."""
    source = read_source(shown, content)
    if _is_in_language(source):
        return compile_source(source, kinds)
    if source.problems:
        raise WorkflowError(source.problems)
    from pydantic import ValidationError

    try:
        return Graph.model_validate(source.value)
    except ValidationError as error:
        raise WorkflowError(
            source.problem(tuple(detail["loc"]), _message(detail), at_value=True)
            for detail in error.errors(include_url=False)
        ) from None


def _message(detail: Any) -> str:
    is_extra = detail["type"] == "unexpected_keyword_argument"
    return "there is no such key" if is_extra else str(detail["msg"])


def _is_in_language(source: Source) -> bool:
    return isinstance(source.value, dict) and isinstance(source.value.get("steps"), dict)


def _from_python(path: Path) -> Graph:
    """Run a module and take its `graph` or `workflow`: a Graph, or one as plain values."""
    module_name = f"_workflow_{path.stem}_{content_hash(str(path.resolve()))[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise _refused(path, "cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(spec)
    from pydantic import ValidationError

    # Dataclasses and pydantic look up their own module while it is executed.
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
        graph: Any = getattr(module, "graph", None) or getattr(module, "workflow", None)
        if graph is None:
            raise _refused(path, "the module defines neither `graph` nor `workflow`")
        if isinstance(graph, Graph):
            return graph.checked()
        return Graph.model_validate(json.loads(json.dumps(graph)))
    except ValidationError as error:
        raise WorkflowError(
            Problem(str(path), None, None, write_key(detail["loc"]), _message(detail))
            for detail in error.errors(include_url=False)
        ) from None
    except WorkflowError:
        raise
    except (Exception, SystemExit) as error:
        raise _refused(path, f"the module raised {type(error).__name__}: {error}") from None
    finally:
        sys.modules.pop(module_name, None)
