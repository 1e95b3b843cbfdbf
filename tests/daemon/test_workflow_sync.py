"""Workflow files and recorded workflows: the daemon keeps them equal."""

import sys
from pathlib import Path

import pytest

from agent.config.settings import Settings
from agent.daemon.workflow_overview import overview
from agent.daemon.workflow_sync import WorkflowChange, WorkflowSync
from agent.store.db.database import Database
from agent.store.engine import workflow_versions

FLOW = "name: {name}\nsteps:\n  one: {{shell: {{argv: [echo, {word}], effect: none}}}}\n"


@pytest.fixture
def settings(sqlite_database: Database, tmp_path: Path) -> Settings:
    """Return settings with an empty workflow directory and a database."""
    (tmp_path / "workflows").mkdir()
    settings = Settings.model_validate({"database": {"url": sqlite_database.url}, "base": tmp_path})
    assert settings.database_url == sqlite_database.url
    return settings


def _write(settings: Settings, file: str, name: str, word: str = "hi") -> Path:
    path = settings.workflow_directory / file
    path.write_text(FLOW.format(name=name, word=word), encoding="utf-8")
    return path


def _on_record(database: Database) -> dict[str, tuple[int, bool]]:
    with database.connect("reader") as connection:
        versions = workflow_versions.latest_versions(connection)
    return {version.name: (version.number, version.removed_at is not None) for version in versions}


def _events(changes: list[WorkflowChange]) -> list[str]:
    return [change.event for change in changes]


def test_files_become_versions_once(settings: Settings, sqlite_database: Database) -> None:
    """A new or changed file is a new version; the same file or a restart is not."""
    sync = WorkflowSync(settings)
    assert sync.sync(sqlite_database) == []
    _write(settings, "a.yaml", "first")
    assert _events(sync.sync(sqlite_database)) == ["workflow.loaded"]
    assert sync.sync(sqlite_database) == []
    assert WorkflowSync(settings).sync(sqlite_database) == []
    _write(settings, "a.yaml", "first", "ho")
    assert _events(sync.sync(sqlite_database)) == ["workflow.loaded"]
    assert _on_record(sqlite_database) == {"first": (2, False)}


def test_a_deleted_or_renamed_workflow_is_removed(
    settings: Settings, sqlite_database: Database
) -> None:
    """Its versions stay recorded, and it returns with its file; also if no agent ran meanwhile."""
    sync = WorkflowSync(settings)
    path = _write(settings, "a.yaml", "first")
    _write(settings, "b.yaml", "second")
    sync.sync(sqlite_database)
    path.unlink()
    assert _events(sync.sync(sqlite_database)) == ["workflow.removed"]
    _write(settings, "b.yaml", "renamed")
    assert sorted(_events(WorkflowSync(settings).sync(sqlite_database))) == [
        "workflow.loaded",
        "workflow.removed",
    ]
    assert _on_record(sqlite_database) == {
        "first": (1, True),
        "second": (1, True),
        "renamed": (1, False),
    }
    _write(settings, "a.yaml", "first")
    sync.sync(sqlite_database)
    assert _on_record(sqlite_database)["first"] == (1, False)


def test_a_broken_file_keeps_its_workflow(settings: Settings, sqlite_database: Database) -> None:
    """The problem is reported once, and the recorded version stays usable."""
    sync = WorkflowSync(settings)
    path = _write(settings, "a.yaml", "first")
    sync.sync(sqlite_database)
    path.write_text("name: first\nsteps: {}\n", encoding="utf-8")
    assert _events(sync.sync(sqlite_database)) == ["workflow.broken"]
    assert sync.sync(sqlite_database) == []
    assert _on_record(sqlite_database) == {"first": (1, False)}
    (listed,) = overview(settings, None)
    assert "a.yaml" in listed["remarks"][0]


def test_missing_modules_children_and_inputs_are_reported(settings: Settings) -> None:
    """Missing modules and child workflows, and inputs that a child would refuse."""
    directory = settings.workflow_directory
    (directory / "mine.py").write_text("def here(): ...", encoding="utf-8")
    (directory / "child.yaml").write_text(
        "name: child\ninputs: {n: integer, m: {default: 1}}\nsteps: {a: {wait: 1ms}}\n",
        encoding="utf-8",
    )
    (directory / "parent.yaml").write_text(
        """
name: parent
steps:
  beside: {python: "mine:here"}
  installed: {python: "os.path:join"}
  nowhere: {python: "not_there.at_all:f"}
  fine: {workflow: {name: child, with: {n: "{{ steps.beside.output }}"}}, depends_on: beside}
  misspelt: {workflow: chidl}
  wrong: {workflow: {name: child, with: {n: many, o: 1}}}
  wanting: {workflow: {name: child, with: {m: 2}}}
  named_later: {workflow: {name: "{{ steps.beside.output }}"}, depends_on: beside}
""",
        encoding="utf-8",
    )
    (parent,) = [workflow for workflow in overview(settings, None) if workflow["name"] == "parent"]
    assert parent["remarks"] == [
        "step nowhere: the module 'not_there.at_all' is neither beside parent.yaml nor installed",
        "step misspelt: no workflow file is called 'chidl'; did you mean 'child'?",
        "step wrong: child: there is no input 'o'; there are n, m",
        "step wrong: child: input 'n' must be a whole number, and is \"many\"",
        "step wanting: child: input 'n' is missing; it is a whole number",
    ]
    assert "not_there" not in sys.modules and "mine" not in sys.modules
