"""The benchmark runs and leaves what it promises; what its figures are is no test's business."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.workflows.compile.compiler import check_text
from agent.workflows.diagnostics import show
from bench import chart, docs, options, report, targets, workloads
from bench.results import Results
from bench.rows import medians, row
from bench.workloads import cli
from tests.support.effort import short_or_full

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 170

COMMON = {
    "engine",
    "store",
    "workload",
    "in_flight",
    "steps_per_s",
    "p50_ms",
    "write_tx_per_task",
    "cpu_ms_per_task",
    "rss_mb",
}

ASKED: list[str] = short_or_full(["W"], [])
"""Each workload loads the program again, which takes most of the time."""


@pytest.mark.process
def test_every_workload_runs_and_leaves_its_rows(tmp_path: Path) -> None:
    """A quick run on SQLite ends well, prints its tables and writes its rows; in full form, of everything."""
    output = tmp_path / "results" / "latest.json"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench",
            "--quick",
            "--only",
            ",".join(["agent", "sqlite", *ASKED]),
            "--output",
            str(output),
        ],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "write transactions" in done.stdout
    rows: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))
    assert all(row.keys() >= COMMON and row["engine"] == "agent" for row in rows)
    loads = {row["in_flight"]: row for row in rows if row["workload"] == "W"}
    assert loads.keys() == {1, 50, 500}
    for load in loads.values():
        assert all(load[name] is not None for name in COMMON), load
        assert load["store"] == "sqlite"
        assert load["steps_per_s"] > 0
    # Counted, not timed: a single task's commits are the same on any machine.
    assert 5 <= loads[1]["write_tx_per_task"] < 8
    workloads = {row["workload"] for row in rows} - {"rest"}
    assert workloads == ({*ASKED} or {*options.WORKLOADS}) - {"rest", "workers"}
    assert output.with_suffix(".svg").read_text(encoding="utf-8").startswith("<svg")
    assert "processor" in json.loads(output.with_name("machine.json").read_text(encoding="utf-8"))


def test_rounds_become_medians() -> None:
    """Measures of the same thing become one row; others stay apart."""
    measured = [row("agent", "sqlite", "W", in_flight=50, p50_ms=ms) for ms in (3.0, 1.0, 2.0)]
    other = row("dbos", "sqlite", "W", in_flight=50, p50_ms=9.0)
    found = medians([*measured, other])
    assert [(each["engine"], each["p50_ms"]) for each in found] == [("agent", 2.0), ("dbos", 9.0)]
    assert found[0]["rss_mb"] is None


@pytest.mark.parametrize(("ours", "is_met"), [(6000.0, True), (5999.0, False)])
def test_a_target_is_met_from_its_limit_on(ours: float, is_met: bool) -> None:
    """Thirty times DBOS's steps a second are promised on SQLite at 50 in flight."""
    rows = [
        row("agent", "sqlite", "W", in_flight=50, steps_per_s=ours),
        row("dbos", "sqlite", "W", in_flight=50, steps_per_s=200.0),
    ]
    (comparison,) = targets.compare(rows)
    assert comparison.at_least == 30
    assert comparison.is_met is is_met


def test_an_idle_task_is_held_against_the_fastest_peer() -> None:
    """A lower bound is no peer, and the slower of two peers does not count."""
    times = {"agent": 4.0, "dbos": 20.0, "langgraph": 10.0, "raw": 2.0}
    rows = [
        row(engine, "sqlite", "W", in_flight=1, p50_ms=ms, write_tx_per_task=6.0)
        for engine, ms in times.items()
    ]
    comparison = next(each for each in targets.compare(rows) if "fastest peer" in each.name)
    assert "langgraph" in comparison.name
    assert comparison.value == pytest.approx(0.4)
    assert comparison.is_met


def test_without_a_peer_nothing_is_compared_with_it() -> None:
    """A run of one engine alone has no ratio to show."""
    rows = [row("agent", "postgres", "W", in_flight=50, steps_per_s=5000.0)]
    assert targets.compare(rows) == []


def test_every_workload_can_be_asked_for() -> None:
    """The names on the command line are those of the table, in its order."""
    assert tuple(workloads.WORKLOADS) == options.WORKLOADS


def test_names_of_one_sort_add_up_and_sorts_narrow_each_other() -> None:
    """`--only` takes engines, stores and workloads alike."""
    asked = options.read(["--only", "agent,sqlite", "--only", "dbos,W"])
    assert asked.engines == ("agent", "dbos")
    assert asked.stores == ("sqlite",)
    assert asked.workloads == ("W",)
    assert options.read([]).is_whole
    assert not asked.is_whole


@pytest.mark.parametrize(
    "arguments", [["--only", "mysql"], ["--rounds", "0"], ["--write-docs", "--quick"]]
)
def test_invalid_options_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown name, no rounds, and documentation from a part of the figures."""
    with pytest.raises(SystemExit, match="2"):
        options.read(arguments)
    assert "error" in capsys.readouterr().err


def test_the_figures_replace_those_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what stands between the marks changes, however often it is written."""
    page = tmp_path / "performance.md"
    page.write_text(docs.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(docs, "PAGE", page)
    monkeypatch.setattr(docs, "PICTURE", page.with_suffix(".svg"))
    before = page.read_text(encoding="utf-8").partition("<!-- figures")[0]
    rows = [
        row("agent", "sqlite", "W", in_flight=50, steps_per_s=12345.0),
        row("dbos", "sqlite", "W", in_flight=50, steps_per_s=300.0),
    ]
    for _ in range(2):
        docs.write(Results(rows, {"processor": "a fast one"}))
    written = page.read_text(encoding="utf-8")
    assert written.startswith(before)
    assert written.count("a fast one") == 1
    assert "12,345" in written
    assert "41.1×" in written
    assert "12,345" in page.with_suffix(".svg").read_text(encoding="utf-8")


def test_a_row_shows_only_what_it_has() -> None:
    """Figures that make no sense for a measure are left empty, and its own are named."""
    ((*_, last),) = report.measured([row("agent", "sqlite", "recovery", running=10, seconds=0.5)])
    assert last == "seconds 0.5"
    assert chart.draw([]).startswith("<svg")


def test_the_workflow_of_the_commands_is_valid() -> None:
    """Commands are measured on files that they accept: `validate` of a broken file does other work."""
    text = cli._FLOW.format(name="flow")
    problems = check_text(text, "flow.yaml")
    assert problems == [], show(problems, {"flow.yaml": text})
