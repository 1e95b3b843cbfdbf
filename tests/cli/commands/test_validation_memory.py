"""`agent validate` remembers what it found, and notices everything that may change it."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from agent.cli.commands.validation_memory import FileReport, FollowsFrom, ValidationMemory
from agent.config.settings import Settings
from tests.support.cli import Cli

FLOW = """\
name: flow
on: {schedule: [{cron: "0 9 * * *", id: morning}]}
steps:
  count: {python: {call: "counting:count", with: {number: 1}}}
  page: {http: {get: "http://127.0.0.1:9/"}}
  child: {workflow: {name: other, with: {city: Rome}}}
"""
OTHER = """\
name: other
inputs: {city: {type: string}}
steps: {wait: {wait: 1s}}
"""
REFUSED = "127.0.0.1 is not a public address and will be refused"
SETTINGS = Settings(base=Path("/"), file=None)


def remarks(cli: Cli) -> list[str]:
    """Return the remarks about `flow.yaml`, checked or remembered."""
    found: list[str] = cli("validate", "workflows/flow.yaml", "--json").json["files"][0]["remarks"]
    return found


def test_a_report_is_remembered_until_anything_changes_that_it_follows_from(cli: Cli) -> None:
    """The modules and the workflows that a file names, the settings and the environment are noticed."""
    cli("init")
    cli.write("workflows/flow.yaml", FLOW)
    cli.write("workflows/other.yaml", OTHER)
    module = cli.write("workflows/counting.py", "def count(number): return number\n")
    # A report of files that were changed just now is not kept.
    time.sleep(0.05)
    first = cli("validate", "workflows/flow.yaml").out
    [kept] = (Path(cli.environment["XDG_CACHE_HOME"]) / "agent").glob("validated-*")
    kept.write_text(kept.read_text(encoding="utf-8").replace(REFUSED, "kept"), encoding="utf-8")
    # Remembered: the next instants are of this moment, all else is as it was kept.
    assert remarks(cli)[0].startswith("step page: kept; to allow it")
    second = cli("validate", "workflows/flow.yaml").out
    assert second.splitlines()[:4] == first.replace(REFUSED, "kept").splitlines()[:4]
    assert "schedule morning" in second
    # Checked again: each change shows.
    module.write_text("def count(amount): return amount\n", encoding="utf-8")
    assert remarks(cli)[0].startswith("step count: counting:count does not accept")
    module.unlink()
    assert "neither beside" in remarks(cli)[0]
    cli.write("workflows/other.yaml", OTHER.replace("city", "town"))
    assert any(remark.startswith("step child: other: ") for remark in remarks(cli))
    cli.environment["AGENT_HTTP__ALLOW_PRIVATE"] = "127.0.0.1"
    assert not any(REFUSED in remark for remark in remarks(cli))
    del cli.environment["AGENT_HTTP__ALLOW_PRIVATE"]
    assert any(REFUSED in remark for remark in remarks(cli))
    cli.write("config.toml", '[http]\nallow_private = ["127.0.0.1"]\n')
    assert not any(REFUSED in remark for remark in remarks(cli))


def test_another_program_checks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports hold for the files of the program and its libraries that made them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library = _library(tmp_path, monkeypatch)
    memory = _memory(tmp_path)
    report = FileReport("other.yaml", "other", 1, ["a remark"])
    memory().write([report], FollowsFrom([], []))
    assert memory().read() == [report]
    os.utime(library, ns=(1, 1))
    assert memory().read() is None


def test_what_changes_while_it_is_checked_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report of the text before a change must not be kept for the text after it, or the other way round."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "other.yaml").write_text(OTHER, encoding="utf-8")
    before, memory = ValidationMemory(SETTINGS, ["other.yaml"]), _memory(tmp_path)
    (tmp_path / "beside.py").write_text("def go(): ...", encoding="utf-8")
    report = FileReport("other.yaml", "other", 1, [])
    before.write([report], FollowsFrom([("beside", "other.yaml")], []))
    assert memory().read() is None


def _memory(directory: Path) -> Callable[[], ValidationMemory]:
    (directory / "other.yaml").write_text(OTHER, encoding="utf-8")

    def make() -> ValidationMemory:
        made = ValidationMemory(SETTINGS, ["other.yaml"])
        # As if the files had been there for a while.
        made._started_ns += 1_000_000_000
        return made

    return make


def _library(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = directory / "library.py"
    file.write_text("", encoding="utf-8")
    module = ModuleType("a_library_of_the_program")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return file


def test_a_problem_does_not_hide_the_workflows_beside_a_file(cli: Cli) -> None:
    """The child is there: nothing else may be said of it, whatever else is wrong."""
    cli("init")
    cli.write("workflows/other.yaml", OTHER)
    cli.write("workflows/flow.yaml", FLOW + "  wrong: {shel: {argv: [x]}}\n")
    report = cli("validate", "workflows/flow.yaml", "--json", code=2).json["files"][0]
    assert report["problems"]
    assert not any("child" in remark for remark in report["remarks"])
