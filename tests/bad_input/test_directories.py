"""A directory of workflow files: whatever one of them is, the others are registered."""

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.cli.commands.validate import validate
from agent.cli.errors import Exit
from agent.config.settings import Settings
from agent.daemon import workflow_overview
from agent.daemon.workflow_sync import WorkflowSync
from agent.store.db.database import Database
from agent.store.engine import workflow_versions
from agent.tasks import submission
from agent.workflows import loader
from agent.workflows.compile.compiler import compile_text
from agent.workflows.directory import Directory
from tests.bad_input.spoiling import spoiled
from tests.bad_input.targets import good

GOOD: Final = "name: good\nsteps:\n  one: {shell: {argv: [echo, hi], effect: none}}\n"

_NAMES: Final = [
    *("name", "steps", "inputs", "on", "output", "retry", "timeout", "shell", "argv", "wait", "if"),
    *("depends_on", "foreach", "parallel", "budget", "defaults", "python", "call", "$ref", "x-1"),
    *("a" * 101, "b" * 5000, "", "é", "two words", "<<", "null"),
]
_LEAVES: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**300, -(10**300), 1e308, -1e308, 1e-308, 0.1, "1e308s", "9" * 400]),
    st.sampled_from([*_NAMES, "{{ steps.a.output }}", "{{", "{% for x in y %}", "99999999w"]),
    st.text(max_size=20),
)
_KEYS: Final = st.sampled_from(_NAMES) | st.text(max_size=8)
_TREES: Final = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=25,
)
_WORKFLOWS: Final = st.fixed_dictionaries(
    {"name": st.just("odd") | _LEAVES, "steps": st.dictionaries(_KEYS, _TREES, max_size=3)},
    optional=dict.fromkeys(("inputs", "on", "output", "defaults", "timeout", "budget"), _TREES),
)
_CONTENTS: Final = st.one_of(
    spoiled(good("workflow")),
    st.binary(max_size=200),
    _TREES.map(lambda tree: json.dumps(tree).encode()),
    _WORKFLOWS.map(lambda tree: json.dumps(tree).encode()),
)
_FILE_NAMES: Final = st.sampled_from(
    [b"a.yaml", b"z.yml", b"-x.yaml", b"\xff\xfe.yaml", b"new\nline.yaml", b"e" * 240 + b".yaml"]
)


def _settings(directory: Path) -> Settings:
    (directory / "workflows").mkdir()
    (directory / "workflows" / "good.yaml").write_text(GOOD)
    return Settings.model_validate({"base": directory})


def _validate(paths: list[Path], *, as_json: bool) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            validate([str(path) for path in paths], as_json=as_json)
        except SystemExit as left:
            return int(left.code or 0), out.getvalue()
    return 0, out.getvalue()


def _check(settings: Settings, database: Database, paths: list[Path]) -> None:
    """What must hold of a directory that has the good file and others."""
    entries = workflow_overview.scan(settings)
    assert "good" in workflow_overview.graphs_of(entries)
    WorkflowSync(settings).sync(database)
    with database.connect("reader") as connection:
        on_record = {each.name for each in workflow_versions.latest_versions(connection)}
        assert "good" in on_record
        listed = {each["name"] for each in workflow_overview.overview(settings, connection)}
        assert "good" in listed
    assert submission.find_workflow("good", settings.workflow_directory, lambda _: None)
    # A name that is taken is the directory's problem: by its path the file is valid.
    broken = {entry.path for entry in entries if entry.workflow is None}
    for as_json in (False, True):
        code, said = _validate(paths, as_json=as_json)
        assert code == (Exit.BAD_INPUT if broken & set(paths) else Exit.DONE)
        assert "internal error" not in said, said
    for entry in entries:
        assert entry.defect is None


@pytest.mark.timeout(240)
def test_no_file_stops_another(sqlite_database: Database) -> None:
    """Random files beside a good one: it is registered, and nothing raises."""

    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.dictionaries(_FILE_NAMES, _CONTENTS, min_size=1, max_size=3))
    def check(contents: dict[bytes, bytes]) -> None:
        with tempfile.TemporaryDirectory() as name:
            found = _settings(Path(name))
            paths = []
            for file, content in contents.items():
                path = found.workflow_directory / os.fsdecode(file)
                path.write_bytes(content)
                paths.append(path)
            _check(found, sqlite_database, paths)

    check()


def _odd(kind: str, path: Path) -> None:
    if kind == "a directory":
        path.mkdir()
    elif kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a link to nothing":
        path.symlink_to("nowhere.yaml.gone")
    elif kind == "a link to itself":
        path.symlink_to(path.name)
    elif kind == "a device":
        path.symlink_to("/dev/null")
    elif kind == "too large":
        path.write_bytes(b"# \n" * 3_000_000)
    elif kind == "aliases that nest":
        lines = ["name: x", "x-0: &a0 [1]"]
        lines += [f"x-{n}: &a{n} {'[' * 45}*a{n - 1}{']' * 45}" for n in range(1, 120)]
        path.write_text("\n".join([*lines, "steps: {a: {wait: 5s}}", "output: *a119"]))
    elif kind == "a long step name":
        path.write_text(f"name: x\nsteps:\n  {'a' * 101}: {{wait: 5s}}\n")


_ODD: Final = {
    "a directory": "it is a directory",
    "a FIFO": "it is not a regular file",
    "a link to nothing": "links to a file that does not exist",
    "a link to itself": "cannot be read",
    "a device": "it is not a regular file",
    "too large": "larger than",
    "aliases that nest": "nested deeper than 50 levels",
    "a long step name": "is too long: 100 characters are allowed",
}


@pytest.mark.parametrize("kind", _ODD)
@pytest.mark.timeout(60)
def test_an_unreadable_file_is_a_problem(
    kind: str, sqlite_database: Database, tmp_path: Path
) -> None:
    """It is reported for that file, and the scan neither waits for it nor fails."""
    found = _settings(tmp_path)
    path = found.workflow_directory / "odd.yaml"
    _odd(kind, path)
    _check(found, sqlite_database, [path])
    (entry,) = (entry for entry in workflow_overview.scan(found) if entry.path == path)
    assert _ODD[kind] in str(entry.problems[0])


def _defective(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the compiler raise for files that hold the word: a defect that is still unknown."""

    def raising(content: Any, *rest: Any) -> Any:
        if b"defective" in content:
            raise LookupError("a defect")
        return compile_text(content, *rest)

    monkeypatch.setattr(loader, "compile_text", raising)


def test_a_defect_of_the_compiler_is_a_problem_of_its_file(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception is logged once."""
    _defective(monkeypatch)
    found = _settings(tmp_path)
    path = found.workflow_directory / "bad.yaml"
    path.write_text("defective")
    shelf = WorkflowSync(found)
    changes = shelf.sync(database)
    assert [change.event for change in changes] == ["workflow.loaded", "workflow.broken"]
    assert "internal error while reading this file: LookupError" in changes[1].details["problem"]
    assert isinstance(changes[1].details["exc_info"], LookupError)
    assert shelf.sync(database) == []
    later = found.workflow_directory / "later.yaml"
    later.write_text(GOOD.replace("good", "later"))
    assert [change.details["workflow"] for change in shelf.sync(database)] == ["later"]
    code, said = _validate([path], as_json=True)
    assert code == Exit.BAD_INPUT
    assert "internal error while reading this file" in said


def test_a_file_that_the_database_refuses_stops_no_other(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose text cannot be stored is reported as broken; the next one is recorded."""
    found = _settings(tmp_path)
    (found.workflow_directory / "a.yaml").write_text(GOOD.replace("good", "a"))
    text = loader.WorkflowFile.__init__

    def spoil(self: Any, path: Path, graph: Any, content: str) -> None:
        text(self, path, graph, "\ud800" if path.name == "a.yaml" else content)

    monkeypatch.setattr(loader.WorkflowFile, "__init__", spoil)
    changes = WorkflowSync(found).sync(database)
    assert sorted(change.event for change in changes) == ["workflow.broken", "workflow.loaded"]
    with database.connect("reader") as connection:
        assert [each.name for each in workflow_versions.latest_versions(connection)] == ["good"]


def test_a_file_that_becomes_readable_is_noticed(tmp_path: Path) -> None:
    """A change of what a link leads to leaves the link's own times as they were."""
    link = tmp_path / "one.yaml"
    link.symlink_to(tmp_path / "target")
    directory = Directory(tmp_path)
    assert directory.scan()
    assert directory.workflows == {}
    (tmp_path / "target").write_text(GOOD)
    assert directory.scan()
    assert list(directory.workflows) == ["good"]


def test_an_unreadable_directory_removes_nothing(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workflows stay on record; when it can be read again, changes are noticed again."""
    found = _settings(tmp_path)
    WorkflowSync(found).sync(sqlite_database)

    def refuse(_: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied")

    listing = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", refuse)
    shelf = WorkflowSync(found)
    (change,) = shelf.sync(sqlite_database)
    assert "the directory cannot be read: Permission denied" in change.details["problem"]
    with sqlite_database.connect("reader") as connection:
        (record,) = workflow_versions.latest_versions(connection)
    assert record.removed_at is None
    monkeypatch.setattr(Path, "iterdir", listing)
    (found.workflow_directory / "good.yaml").unlink()
    assert [change.event for change in shelf.sync(sqlite_database)] == ["workflow.removed"]


def test_a_file_that_could_not_be_recorded_is_retried(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that came while the database was down is recorded once it is back."""
    found = _settings(tmp_path)
    shelf = WorkflowSync(found)
    shelf.sync(sqlite_database)
    (found.workflow_directory / "late.yaml").write_text(GOOD.replace("good", "late"))

    def refuse(*_: Any) -> int:
        raise ConnectionError("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(workflow_versions, "register", refuse)
        with pytest.raises(ConnectionError):
            shelf.sync(sqlite_database)
    assert [change.details["workflow"] for change in shelf.sync(sqlite_database)] == ["late"]
