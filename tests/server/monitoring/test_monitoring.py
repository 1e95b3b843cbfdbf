"""The dashboard, the alerts and /metrics agree with each other and with Prometheus's own checker."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from tests.support.server import Running

MONITORING = Path(__file__).parents[3] / "examples" / "monitoring"
WORDS = re.compile(r"\bagent_[a-z_]+\b")
PROMTOOL = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


def exposed(client: httpx.Client) -> dict[str, str]:
    """Return the type of each metric of a running agent."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", client.get("/metrics").text, re.MULTILINE))


def queries() -> list[str]:
    """Return all queries of the dashboard and of the alerts."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    rules: Any = YAML(typ="safe").load(MONITORING / "alerts.yml")
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    found += [each["query"]["query"] for each in dashboard["templating"]["list"][1:]]
    return found + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def test_every_metric_that_is_asked_for_exists(client: httpx.Client) -> None:
    """A renamed metric must not leave an empty panel or a silent alert."""
    kinds = exposed(client)
    suffixes = {
        name: ("_bucket", "_sum", "_count") for name, kind in kinds.items() if kind == "histogram"
    }
    names = set(kinds) | {name + end for name, ends in suffixes.items() for end in ends}
    asked = {word for query in queries() for word in WORDS.findall(query)}
    assert len(asked) > 20
    assert asked <= names
    counters = {name for name, kind in kinds.items() if kind == "counter"}
    for query in queries():
        # A counter by itself says nothing: only its rate does.
        for name in counters & set(WORDS.findall(query)):
            assert re.search(rf"(rate|increase)\({name}\b", query), query


def test_names_follow_the_conventions(client: httpx.Client) -> None:
    """Counters end in _total, nothing else does, and units are base units."""
    for name, kind in exposed(client).items():
        assert name.endswith("_total") == (kind == "counter"), name
        assert not re.search(r"_(ms|milliseconds|minutes|hours|mb|kb|percent)(_|$)", name), name


@needs_promtool
def test_prometheus_finds_no_fault_with_the_metrics(running: Running, client: httpx.Client) -> None:
    """Its own linter reads what the agent answers."""
    task_id = client.post("/api/v1/workflows/quick/tasks").json()["id"]
    running.wait_for_task(client, task_id, "succeeded")
    done = subprocess.run(
        [str(PROMTOOL), "check", "metrics"],
        input=client.get("/metrics").text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_promtool
def test_prometheus_accepts_the_rules_and_the_queries(tmp_path: Path) -> None:
    """The alerts, the scrape, and each query of the dashboard as a rule."""
    variables = {"$instance": ".*", "$__rate_interval": "5m"}
    rules = []
    for number, query in enumerate(queries()):
        for name, value in variables.items():
            query = query.replace(name, value)
        if "label_values" not in query:
            rules.append({"record": f"query:{number}", "expr": query})
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    for arguments in (
        ["rules", MONITORING / "alerts.yml"],
        ["rules", tmp_path / "rules.yml"],
        ["config", "--syntax-only", MONITORING / "prometheus.yml"],
    ):
        done = subprocess.run(
            [str(PROMTOOL), "check", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_panels_do_not_overlap() -> None:
    """Each panel of the dashboard has a number and a place of its own."""
    panels = json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
