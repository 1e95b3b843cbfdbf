"""The wheel: it works outside of the clone, and brings examples, schema and man page."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import installed_wheel


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment in which the built wheel is installed."""
    return installed_wheel.install(tmp_path_factory.mktemp("wheel"))


def _run(environment: Path, directory: Path, *arguments: str) -> str:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AGENT_") and name != "PYTHONPATH"
    }
    done = subprocess.run(
        [str(environment / "bin" / "agent"), *arguments],
        cwd=directory,
        env=inherited | {"HOME": str(directory), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def test_the_wheel_works_outside_of_the_clone(environment: Path, tmp_path: Path) -> None:
    """A new user creates an agent, runs a task, and gets examples and the schema."""
    python = environment / "bin" / "python"
    where = [str(python), "-c", "import agent; print(agent.__file__)"]
    package = subprocess.run(where, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert package.stdout.startswith(str(environment))
    _run(environment, tmp_path, "init", "--example", "diamond")
    assert "hello, you" in _run(environment, tmp_path, "run", "hello", "-i", "name=you")
    assert "succeeded" in _run(environment, tmp_path, "run", "diamond")
    examples = {
        each["name"] for each in json.loads(_run(environment, tmp_path, "examples", "--json"))
    }
    assert examples == {path.stem for path in (installed_wheel.ROOT / "examples").rglob("*.yaml")}
    schema = json.loads(_run(environment, tmp_path, "schema"))
    assert json.loads((tmp_path / "workflow.schema.json").read_text()) == schema
    assert (
        (tmp_path / "workflows" / "diamond.yaml")
        .read_text()
        .startswith("# yaml-language-server: $schema=../workflow.schema.json\n")
    )


def test_the_wheel_brings_the_man_page_and_no_tests(environment: Path) -> None:
    """`man agent` works in an environment that is on the path; tests stay in the clone."""
    page = environment / "share" / "man" / "man1" / "agent.1"
    assert page.read_text() == (installed_wheel.ROOT / "man" / "agent.1").read_text()
    (site,) = environment.glob("lib/python*/site-packages")
    assert not (site / "tests").exists()
    assert not (site / "bench").exists()
