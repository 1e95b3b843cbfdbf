"""Starting a workflow: which workflow a name means, and what its task is created with."""

from pathlib import Path

import pytest

from agent.config.settings import Settings
from agent.daemon.workflow_sync import WorkflowSync
from agent.store.db.database import Database
from agent.store.db.json_values import NotPlainJsonError
from agent.tasks.errors import NotFoundError
from agent.tasks.submission import (
    StartableWorkflow,
    TooManyStepsError,
    find_workflow,
    new_submission,
    recorded_workflow,
)
from agent.workflows.compile.compiler import compile_text
from agent.workflows.compile.inputs import InputError

FLOW = """\
name: first
inputs: {n: integer, m: {default: 1}, free: {required: false}}
steps: {a: {wait: 1ms}, b: {wait: 1ms}}
"""
TRIGGER = {"kind": "manual"}


@pytest.fixture
def workflow() -> StartableWorkflow:
    """Return a compiled workflow that came from a file."""
    return StartableWorkflow(compile_text(FLOW.encode(), "flow.yaml"), FLOW, "/somewhere/flow.yaml")


def test_a_name_means_a_file_before_a_recorded_workflow(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """A removed workflow is not found."""
    settings = Settings.model_validate({"database": {"url": sqlite_database.url}, "base": tmp_path})
    directory = settings.workflow_directory
    directory.mkdir()
    path = directory / "a.yaml"
    path.write_text(FLOW, encoding="utf-8")

    def find(name: str) -> StartableWorkflow:
        with sqlite_database.connect("reader") as connection:
            return find_workflow(
                name, directory, lambda known: recorded_workflow(connection, known)
            )

    assert find("first").path == str(path)
    assert find(str(path)).graph.name == "first"
    sync = WorkflowSync(settings)
    sync.sync(sqlite_database)
    path.unlink()
    assert find("first").source == FLOW
    sync.sync(sqlite_database)
    with pytest.raises(NotFoundError, match="no workflow is called 'first'"):
        find("first")


def test_a_submission_is_complete(workflow: StartableWorkflow) -> None:
    """Typed inputs take their declared types, defaults are filled in, and the origin is recorded."""
    submission = new_submission(
        workflow,
        steps_per_task=2,
        trigger=TRIGGER,
        values={"m": 5},
        texts={"n": "7"},
        priority="high",
        dedupe_key="chat:main:1",
    )
    assert submission.input == {"n": 7, "m": 5, "free": None}
    assert submission.trigger == TRIGGER
    assert (submission.priority, submission.dedupe_key) == ("high", "chat:main:1")
    assert (submission.source, submission.path) == (FLOW, "/somewhere/flow.yaml")


def test_the_callers_mistakes_are_refused_before_any_transaction(
    workflow: StartableWorkflow,
) -> None:
    """Wrong inputs, too many steps, and values that no database can store."""
    with pytest.raises(InputError, match="input 'n' is missing"):
        new_submission(workflow, steps_per_task=2, trigger=TRIGGER)
    with pytest.raises(TooManyStepsError, match=r"first has 2 steps.*steps_per_task.*allows 1"):
        new_submission(workflow, steps_per_task=1, trigger=TRIGGER, values={"n": 1})
    for values, trigger in (({"n": 1, "free": "a\0b"}, TRIGGER), ({"n": 1}, {"body": "a\0b"})):
        with pytest.raises(NotPlainJsonError):
            new_submission(workflow, steps_per_task=2, trigger=trigger, values=values)
