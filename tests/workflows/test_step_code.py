"""The code of steps: a changed file is other code, and a new version."""

from pathlib import Path

import agent.steps.spec.registry  # noqa: F401 - makes the kinds known
from agent.workflows.directory import Directory
from agent.workflows.loader import load

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
