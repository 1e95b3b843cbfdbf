"""Starting a workflow: the one way, for the command line, the API, chats and webhooks.

Each of them resolves a workflow (`find_workflow`, `recorded_workflow`), builds the task to create
with `new_submission`, and commits it: `Worker.submit` inside the daemon's own process, which puts
many submissions into one commit, and `Operator.submit` from any other place. Both return the
existing task's id if the dedupe key is known already.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.core.chat_origin import ChatOrigin
from agent.core.plain_json import Json
from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.store.db.database import Connection
from agent.store.db.json_values import encode
from agent.store.engine import workflow_versions
from agent.tasks.errors import NotFoundError
from agent.tasks.rules.creation import PRIORITIES, Submission
from agent.workflows.compile.inputs import InputError, check_inputs, read_inputs
from agent.workflows.diagnostics import WorkflowError, did_you_mean
from agent.workflows.file_names import file_of
from agent.workflows.graph import Graph
from agent.workflows.step_code import code_hashes

if TYPE_CHECKING:
    from agent.workflows import loader


COMPILED_SUFFIXES: Final = (".yaml", ".yml")
"""Files whose graph depends on nothing but their text."""


class TooManyStepsError(ValueError):
    """A workflow has more steps than `steps_per_task` in [engine] allows."""

    def __init__(self, graph: Graph, steps_per_task: int) -> None:
        super().__init__(
            f"{graph.name} has {len(graph.steps):,} steps,"
            f" and steps_per_task in [engine] allows {steps_per_task:,}"
        )


@dataclass(frozen=True, slots=True)
class StartableWorkflow:
    """A compiled workflow with the file it came from."""

    graph: Graph
    source: str | None
    path: str | None


def recorded_workflow(connection: Connection, name: str) -> StartableWorkflow | None:
    """Return the newest recorded version of a workflow that has not been removed."""
    latest = workflow_versions.latest(connection, name)
    if latest is None:
        return None
    _, graph, source, path = latest
    return StartableWorkflow(Graph.model_validate_json(graph), source, path)


def unchanged_workflow(
    connection: Connection, path: Path, is_compiled: Callable[[str, str], bool]
) -> StartableWorkflow | None:
    """Return the workflow of a file as it is recorded, if it need not be compiled again.

    The newest version of its workflow comes from this file. `is_compiled` says of a text and the hash of
    a graph whether this program made one of the other: another compiler may make another graph. The
    recorded text may be another one that has the same graph: what differs is a comment.
    """
    if path.suffix not in COMPILED_SUFFIXES:
        return None
    name = workflow_versions.name_at(connection, str(path.absolute()))
    recorded = None if name is None else workflow_versions.newest_at(connection, name)
    if recorded is None or recorded.path != str(path.absolute()):
        return None
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError):
        return None
    if not is_compiled(text, recorded.hash):
        return None
    graph = Graph.stored(recorded.graph, recorded.hash)
    graph.note_code(code_hashes(graph, path.absolute()))
    return StartableWorkflow(graph, text, recorded.path)


def find_workflow(
    name: str, directory_path: Path, recorded: Callable[[str], StartableWorkflow | None]
) -> StartableWorkflow:
    """Return the workflow of a file, or of a name in the directory, or of a recorded name.

    A Python file is executed: call this only to start a task.
    """
    # Registers the kinds of steps: without them every step of a file would have an unknown kind.
    from agent.workflows import loader
    from agent.workflows.directory import Directory

    if (path := file_of(name)) is not None:
        return _from_file(loader.load(path, is_trusted=True))
    directory = Directory(directory_path)
    directory.scan()
    for entry in directory.entries:
        if name in (entry.name, entry.path.stem) and entry.problems:
            raise WorkflowError(entry.problems)
    file = directory.find(name)
    if file is not None:
        return _from_file(file)
    workflow = recorded(name)
    if workflow is not None:
        return workflow
    known = sorted(directory.workflows)
    hint = did_you_mean(name, known)
    if hint is None:
        hint = f"there are {', '.join(known)}" if known else "give a file, as in flow.yaml"
    raise NotFoundError(f"no workflow is called {name!r} in {directory_path}; {hint}")


def _from_file(file: "loader.WorkflowFile") -> StartableWorkflow:
    return StartableWorkflow(file.graph, file.text, str(file.path.absolute()))


def new_submission(
    workflow: StartableWorkflow,
    *,
    steps_per_task: int,
    trigger: dict[str, Json],
    values: Mapping[str, Json] | None = None,
    texts: Mapping[str, str] | None = None,
    priority: str | None = None,
    dedupe_key: str | None = None,
    chat_origin: ChatOrigin | None = None,
) -> Submission:
    """Check the inputs of a workflow and return the task to create.

    `trigger` is the task's record of its start: its `kind`, and who or what started it.
    `chat_origin` is where in a chat that was. `texts` are inputs typed as `key=value`, which take the declared types. Raise `InputError`,
    `TooManyStepsError` or `NotPlainJsonError` for the caller's own mistakes; the transaction that
    creates the task then has nothing left to refuse.
    """
    graph = workflow.graph
    if len(graph.steps) > steps_per_task:
        raise TooManyStepsError(graph, steps_per_task)
    if priority is not None and priority not in PRIORITIES:
        raise InputError([f"priority must be {', '.join(PRIORITIES)}, and is {priority!r}"])
    checked = check_inputs(graph, {**(values or {}), **read_inputs(graph, texts or {})})
    encode(checked, "input")
    encode(trigger, "trigger")
    return Submission(
        graph=graph,
        input=checked,
        priority=priority,
        trigger=trigger,
        dedupe_key=dedupe_key,
        source=workflow.source,
        path=workflow.path,
        chat_origin=None if chat_origin is None else chat_origin.dump(),
    )
