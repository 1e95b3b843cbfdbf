"""The code of steps: a changed file is other code, and a new version."""

from pathlib import Path

import pytest

from agent.core.ids import content_hash
from agent.workflows.directory import Directory
from agent.workflows.graph import Graph, Step
from agent.workflows.loader import load
from agent.workflows.step_code import code_hashes

WORKFLOW = """
name: coded
steps:
  py: {python: "my_steps:work"}
  sh: {shell: {argv: [sh, ./do.sh]}}
  other: {python: "json:dumps"}
"""


def _write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_modules_and_scripts_beside_a_workflow_are_hashed(tmp_path: Path) -> None:
    """An installed module has no file of the workflow's; the hash follows the content."""
    path = _write(tmp_path, "coded.yaml", WORKFLOW)
    _write(tmp_path, "my_steps.py", "def work(): return 1\n")
    _write(tmp_path, "do.sh", "true\n")
    before = load(path).graph
    assert before.code is not None and before.code.keys() == {"py", "sh"}
    _write(tmp_path, "my_steps.py", "def work(): return 12\n")
    after = load(path).graph
    assert after.code is not None
    assert after.code["py"] != before.code["py"] and after.code["sh"] == before.code["sh"]
    assert after.hash == before.hash, "the code is no part of the graph"


def test_a_scan_notices_changed_code(tmp_path: Path) -> None:
    """The workflow's own file is as it was."""
    _write(tmp_path, "coded.yaml", WORKFLOW)
    _write(tmp_path, "my_steps.py", "def work(): return 1\n")
    directory = Directory(tmp_path)
    assert directory.scan()
    first = directory.workflows["coded"].graph.code
    assert not directory.scan()
    _write(tmp_path, "my_steps.py", "def work(): return 12\n")
    assert directory.scan()
    assert directory.workflows["coded"].graph.code != first


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["sh", "./do.sh", "data.csv"], ["do.sh"]),
        (["./do.sh", "data.csv"], ["do.sh"]),
        (["python3.12", "-X", "dev", "do.sh", "data.csv"], ["do.sh"]),
        (["uv", "run", "python", "do.sh", "data.csv"], ["do.sh"]),
        (["bash", "-e", "do.sh", "data.csv"], ["do.sh"]),
        (["perl", "-e", "print 1", "data.csv"], []),
        (["timeout", "10", "./do.sh", "data.csv"], ["do.sh"]),
        (["timeout", "{{ inputs.seconds }}", "./do.sh", "data.csv"], ["do.sh"]),
        (["env", "./bin/python", "data.csv", "do.sh"], ["bin/python", "data.csv"]),
        (["nice", "cat", "data.csv"], []),
        (["flock", "data.csv", "./do.sh"], ["do.sh"]),
        (["python", "-m", "csv_tool", "data.csv"], []),
        (["bash", "-lc", "cat data.csv", "data.csv"], []),
        (["cat", "data.csv"], []),
        (["sh", "{{ inputs.file }}", "data.csv"], []),
    ],
    ids=" ".join,
)
def test_code_is_the_program_and_the_script_of_an_interpreter(
    tmp_path: Path, argv: list[str], code: list[str]
) -> None:
    """Other files that a command names are data, which may change with each run."""
    (tmp_path / "bin").mkdir()
    for name in ("do.sh", "data.csv", "bin/python"):
        _write(tmp_path, name, name).chmod(0o644 if name == "data.csv" else 0o755)
    step = Step(name="a", kind="shell", config={"argv": argv})
    hashes = code_hashes(Graph(name="coded", steps=[step]), tmp_path / "coded.yaml")
    expected = [content_hash(name) for name in code]
    assert list(hashes.values()) == ([content_hash(" ".join(expected))] if code[1:] else expected)


def test_changed_data_makes_no_new_version(tmp_path: Path) -> None:
    """A file that a step reads or writes may change between any two scans."""
    shell = "{shell: {argv: [cat, ./data.csv], code: [rates.csv]}}"
    _write(tmp_path, "coded.yaml", f"name: coded\nsteps:\n  a: {shell}\n")
    _write(tmp_path, "data.csv", "1")
    _write(tmp_path, "rates.csv", "1")
    directory = Directory(tmp_path)
    directory.scan()
    _write(tmp_path, "data.csv", "12")
    assert not directory.scan()
    _write(tmp_path, "rates.csv", "12")
    assert directory.scan(), "`code` names it"


def test_a_python_step_lists_further_files(tmp_path: Path) -> None:
    """Imports are not followed: what a module needs is listed, relative to the workflow's file."""
    _write(tmp_path, "my_steps.py", "import helpers\n")
    _write(tmp_path, "helpers.py", "RATE = 1\n")
    call = {"call": "my_steps:work", "code": ["helpers.py"]}
    graph = Graph(name="coded", steps=[Step(name="a", kind="python", config=call)])
    before = code_hashes(graph, tmp_path / "coded.yaml")
    _write(tmp_path, "helpers.py", "RATE = 12\n")
    assert code_hashes(graph, tmp_path / "coded.yaml") != before
