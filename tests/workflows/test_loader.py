"""Files and directories of workflows: every suffix, and every change noticed."""

import json
import os
from pathlib import Path

import pytest

from agent.workflows.compile.compiler import compile_text
from agent.workflows.diagnostics import WorkflowError
from agent.workflows.directory import Directory
from agent.workflows.loader import load
from tests.support.sample_kinds import KINDS

TEXT = "name: one\nsteps:\n  a: {nap: }\n"


def test_yaml_json_and_python_files_are_loaded(tmp_path: Path) -> None:
    """The language as YAML and as JSON, a compiled graph, and modules that make one."""
    graph = compile_text(TEXT, kinds=KINDS)
    contents = {
        "a.yaml": TEXT,
        "b.yml": TEXT,
        "compiled.json": graph.text,
        "language.json": json.dumps({"name": "one", "steps": {"a": {"nap": None}}}),
        "values.py": f"workflow = {graph.model_dump(exclude_defaults=True)!r}\n",
        "graph.py": (
            "from agent.workflows.graph import Graph, Step\n"
            "graph = Graph(name='one', steps=[Step(name='a', kind='nap')])\n"
        ),
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
        loaded = load(tmp_path / name, KINDS, is_trusted=True)
        assert loaded.graph == graph, name
        assert loaded.text == text


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "name: x", "'steps' is missing"),
        ("a.txt", TEXT, "a workflow file ends in"),
        ("a.yaml", "{", "not YAML: the file ends"),
        ("a.json", "{", "not JSON: the file ends"),
        ("a.json", '{"name": "\x01"}', "not JSON: it holds the control character"),
        ("a.json", '{"name": "x", "steps": []}', "at least 1 item"),
        (
            "a.json",
            '{"name": "x", "steps": [{"name": "a", "kind": "k", "oops": 1}]}',
            "steps[0].oops",
        ),
        ("a.py", "x = 1", "neither `graph` nor `workflow`"),
        ("a.py", "raise RuntimeError('no')", "raised RuntimeError: no"),
        ("a.py", "import sys; sys.exit(3)", "raised SystemExit"),
        ("a.py", "def (", "raised SyntaxError"),
        ("a.py", "graph = {'name': 'x'}", "Field required"),
        ("a.py", "graph = object()", "raised TypeError"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_a_problem(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    """It has the file's path, and is never another exception."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(WorkflowError) as caught:
        load(path, KINDS, is_trusted=True)
    assert words in str(caught.value)
    assert caught.value.problems[0].file == str(path)


def test_a_python_file_runs_only_where_it_is_trusted(tmp_path: Path) -> None:
    """Reading one means running it, so nothing reads it by chance."""
    path = tmp_path / "flow.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(WorkflowError, match="only once its file has run"):
        load(path, KINDS)
    assert not (tmp_path / "ran").exists()


def test_a_missing_file_and_a_directory_are_problems(tmp_path: Path) -> None:
    """So are other errors of the file system."""
    with pytest.raises(WorkflowError, match="there is no such file"):
        load(tmp_path / "none.yaml", KINDS)
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(WorkflowError, match="cannot be read"):
        load(tmp_path / "folder.yaml", KINDS)


def test_a_directory_notices_every_change(tmp_path: Path) -> None:
    """New, changed, broken, repaired and deleted files; nothing is news twice."""
    directory = Directory(tmp_path, KINDS)
    assert not directory.scan()
    (tmp_path / "one.yaml").write_text(TEXT)
    (tmp_path / "steps.py").write_text("this is no workflow")
    (tmp_path / ".hidden.yaml").write_text("neither is this")
    assert directory.scan()
    assert list(directory.workflows) == ["one"]
    assert not directory.scan()
    first = directory.find("one")
    # The same size and, on many systems, the same time stamp.
    (tmp_path / "one.yaml").write_text(TEXT.replace("a:", "b:"))
    assert directory.scan()
    second = directory.find("one")
    assert first is not None
    assert second is not None
    assert first.graph.hash != second.graph.hash
    (tmp_path / "one.yaml").write_text("name: one\nsteps: 5\n")
    assert directory.scan()
    assert directory.workflows == {}
    assert [problem.line for problem in directory.problems] == [2]
    (tmp_path / "one.yaml").write_text(TEXT)
    assert directory.scan()
    assert directory.problems == []
    (tmp_path / "one.yaml").unlink()
    assert directory.scan()
    assert directory.entries == ()


def test_an_old_file_is_read_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose time stamp is safely in the past costs one look at it."""
    path = tmp_path / "one.yaml"
    path.write_text(TEXT)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    directory = Directory(tmp_path, KINDS)
    directory.scan()

    def refuse(_: Path) -> bytes:
        raise AssertionError("the file was read again")

    monkeypatch.setattr("agent.workflows.directory.read_content", refuse)
    assert not directory.scan()
    assert list(directory.workflows) == ["one"]


def test_two_files_of_one_name_are_a_problem(tmp_path: Path) -> None:
    """The first file keeps the name, the second is refused, until the first is gone."""
    (tmp_path / "a.yaml").write_text(TEXT)
    (tmp_path / "b.yaml").write_text(TEXT)
    directory = Directory(tmp_path, KINDS)
    directory.scan()
    found = directory.find("one")
    assert found is not None
    assert found.path.name == "a.yaml"
    assert "already taken by a.yaml" in str(directory.problems[0])
    (tmp_path / "a.yaml").unlink()
    directory.scan()
    assert directory.problems == []


def test_two_files_that_take_free_text_are_a_problem(tmp_path: Path) -> None:
    """The first file gets what people write in chats, the second is refused."""
    text = f"{TEXT}on: {{chat: {{text: true}}}}\n"
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text.replace("one", "two"))
    (tmp_path / "c.yaml").write_text(
        text.replace("one", "three").replace("text: true", "command: c")
    )
    directory = Directory(tmp_path, KINDS)
    directory.scan()
    assert sorted(directory.workflows) == ["one", "three"]
    (problem,) = directory.problems
    assert "on.chat.text: a.yaml takes free text in chats already" in str(problem)


def test_a_directory_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """It may be made later."""
    directory = Directory(tmp_path / "later", KINDS)
    assert not directory.scan()
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "one.yml").write_text(TEXT)
    assert directory.scan()
