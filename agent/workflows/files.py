"""Workflows from files: YAML in the language, JSON as a compiled graph, Python that makes one."""

import importlib.util
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agent.keys import content_hash
from agent.workflows.compiling import compile_source, compile_text
from agent.workflows.graph import Graph
from agent.workflows.kinds import KindSpec
from agent.workflows.problems import Problem, WorkflowError, write_key
from agent.workflows.source import MAX_BYTES, read_source

SUFFIXES: Final = (".yaml", ".yml", ".json", ".py")


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """A workflow and the file that it came from."""

    path: Path
    graph: Graph
    text: str
    """The file as it was read: what is kept as the version's source."""


def load(path: Path, kinds: Mapping[str, KindSpec] | None = None) -> WorkflowFile:
    """Load a workflow from a file; raise `WorkflowError` with every problem in it."""
    shown = str(path)
    content = read_content(path)
    if path.suffix == ".py":
        graph = _from_python(path)
    elif path.suffix == ".json":
        graph = _from_json(shown, content, kinds)
    elif path.suffix in SUFFIXES:
        graph = compile_text(content, shown, kinds)
    else:
        message = f"a workflow file ends in {', '.join(SUFFIXES)}"
        raise WorkflowError([Problem(shown, None, None, "", message)])
    return WorkflowFile(path, graph, content.decode("utf-8-sig", errors="replace"))


def read_content(path: Path) -> bytes:
    """Read a file, or say why it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else None
        message = reason or f"cannot be read: {error.strerror or error}"
        raise WorkflowError([Problem(str(path), None, None, "", message)]) from None
    if len(content) > MAX_BYTES:
        message = f"larger than {MAX_BYTES:,} bytes"
        raise WorkflowError([Problem(str(path), None, None, "", message)])
    return content


def _from_json(shown: str, content: bytes, kinds: Mapping[str, KindSpec] | None) -> Graph:
    """Read a compiled graph; a workflow whose steps are a mapping is the language, as JSON."""
    source = read_source(shown, content)
    if isinstance(source.value, dict) and isinstance(source.value.get("steps"), dict):
        return compile_source(source, kinds)
    if source.problems:
        raise WorkflowError(source.problems)
    try:
        return Graph.model_validate(source.value)
    except ValidationError as error:
        raise WorkflowError(
            source.problem(tuple(each["loc"]), each["msg"], at_value=True)
            for each in error.errors(include_url=False)
        ) from None


def _from_python(path: Path) -> Graph:
    """Run a module and take its `graph` or `workflow`: a Graph, or one as plain values."""

    def refuse(message: str) -> WorkflowError:
        return WorkflowError([Problem(str(path), None, None, "", message)])

    module_name = f"_workflow_{path.stem}_{content_hash(str(path.resolve()))[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise refuse("cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pydantic look their own module up while it is being executed.
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
        found: Any = getattr(module, "graph", None) or getattr(module, "workflow", None)
        if found is None:
            raise refuse("the module defines neither `graph` nor `workflow`")
        if isinstance(found, Graph):
            return found
        return Graph.model_validate(json.loads(json.dumps(found)))
    except ValidationError as error:
        raise WorkflowError(
            Problem(str(path), None, None, write_key(each["loc"]), each["msg"])
            for each in error.errors(include_url=False)
        ) from None
    except WorkflowError:
        raise
    except (Exception, SystemExit) as error:
        raise refuse(f"the module raised {type(error).__name__}: {error}") from None
    finally:
        sys.modules.pop(module_name, None)
