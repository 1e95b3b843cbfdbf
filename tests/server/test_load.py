"""The API of a real daemon under load: no acknowledged task is lost."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.process


def test_acknowledged_tasks_survive_load() -> None:
    """Above its limits it returns 429 or 503; every acknowledged task exists and succeeds."""
    options = {
        "rate": 60,
        "seconds": 1.5,
        "flood_seconds": 1.5,
        "flooders": 60,
        "naps": 10,
        "max_requests": 12,
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.programs.api", json.dumps(options)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    # The program itself fails when a task that was acknowledged is not there or does not succeed.
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["requests"] == 90
    created = report["codes"].get("201", 0) + report["flood_codes"].get("201", 0)
    assert report["tasks_acknowledged"] >= created > 0
    assert {"200", "201"} <= set(report["flood_codes"]) <= {"200", "201", "429", "503"}
    assert {"429", "503"} & set(report["flood_codes"])
