"""Earlier versions of the program, taken from the repository's own history."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.cli import PROGRAM, ROOT, Cli

_VERSIONS = ":(glob)agent/**/migrations/versions"


def known(commit: str) -> str:
    """Return a commit of the history; skip where this copy has none at all, fail where it is not in it."""
    if not (ROOT / ".git").exists() or _git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("this copy has no history: it is no clone, or a shallow one")
    return _git("rev-parse", "--verify", commit)


def last_with_revision(revision: str) -> str:
    """Return the last commit with a revision of the schema; fail where the history does not have it."""
    known("HEAD")
    following = f"{int(revision) + 1:04}"
    commits = _git("log", "--diff-filter=A", "--format=%H", "--", f"{_VERSIONS}/{following}_*.py")
    assert commits, f"this copy has no history from before migration {following}"
    return f"{commits.split()[-1]}^"


def extract(commit: str, directory: Path) -> Path:
    """Write the program as it was at a commit into a directory, which is returned."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit, "agent"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory


def program_of(tree: Path, cli: Cli) -> Cli:
    """Return the command line of an extracted version, in the directory of the present one's."""
    older = Cli(cli.directory, **cli.environment | {"PYTHONPATH": str(tree)})
    older.program = PROGRAM
    shown = subprocess.run(
        [sys.executable, "-c", "import agent; print(agent.__file__)"],
        cwd=older.directory,
        env=older.environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(shown.stdout.strip()).is_relative_to(tree), "another version would be tested"
    return older


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments],
        cwd=ROOT,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(ROOT.parent)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
