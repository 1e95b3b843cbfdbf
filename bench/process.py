"""A measurement in a process of its own: values in on the command line, JSON out on the last line."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
_LONGEST_SECONDS: Final = 1800


def measure(program: str, **given: Any) -> Any:
    """Run one of the programs and return what it answers."""
    done = subprocess.run(
        [sys.executable, "-m", f"bench.programs.{program}", json.dumps(given)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        shown = json.dumps(given)
        raise SystemExit(f"{program} {shown} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def answer(program: Callable[..., Any]) -> None:
    """Be such a program: call it with what was given and print what it returns."""
    print(json.dumps(program(**json.loads(sys.argv[1]))))
