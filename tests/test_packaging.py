"""The wheel: it works outside of the clone, and brings examples, schema and man page."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dockerfile import copied

ROOT = Path(__file__).parent.parent
SOURCES = [name for name in copied() if name != "constraints.txt"]
"""What the image is built from: a file that the build needs and the Dockerfile does not copy is missing here."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a virtual environment in which the built wheel is installed.

    Its libraries are those of this environment.
    """
    directory = tmp_path_factory.mktemp("wheel")
    clone = directory / "clone"
    clone.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source, clone / name, ignore=skipped)
        else:
            shutil.copy(source, clone / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = ["wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(directory), str(clone)]
    subprocess.run([*pip, *build], check=True)
    (wheel,) = directory.glob("agent-*.whl")
    environment = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run(
        [
            *pip,
            "--python",
            str(python),
            "install",
            "-q",
            "--no-compile",
            "--no-deps",
            "--no-index",
            str(wheel),
        ],
        check=True,
    )
    (site,) = environment.glob("lib/python*/site-packages")
    libraries = {sysconfig.get_path("purelib"), *(path for path in sys.path if "site-pack" in path)}
    # Before the directories that an editable installation adds: the wheel's own package is first.
    (site / "libraries.pth").write_text("\n".join(sorted(libraries)) + "\n")
    yield environment


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
    assert examples == {path.stem for path in (ROOT / "examples").rglob("*.yaml")}
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
    assert page.read_text() == (ROOT / "man" / "agent.1").read_text()
    (site,) = environment.glob("lib/python*/site-packages")
    assert not (site / "tests").exists()
    assert not (site / "bench").exists()
