"""Try the targets of `make help` as a new user would: in a fresh clone, each with a fresh environment.

    python -m tests.fresh_clone [TARGET…] [--part 1/3] [--keep]

Each target runs in its shortest form. It clones what is committed, so commit first. `--part` divides the
targets among several runs; `--keep` uses one environment for all, which is quicker and finds less.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
TIMEOUT_SECONDS: Final = 1800.0
_ONE_TEST: Final = "ARGS=tests/core/test_waits.py"
_OF_TARGETS: Final = ("ARGS", "KILLS", "SEED")
"""Make exports those of its own command line, which are meant for `make targets` alone."""
SHORTEST: Final[dict[str, tuple[str, ...]]] = {
    "help": (),
    "run": (),
    "test": (_ONE_TEST,),
    "thorough": (_ONE_TEST,),
    "quick": (),
    "screens": (),
    "fuzz": ("ARGS=--seconds 2",),
    "check": (),
    "format": (),
    "campaign": ("KILLS=4",),
    "leases": ("KILLS=4",),
    "siege": ("KILLS=2",),
    "conformance": ("ARGS=-k local",),
    "crashpoints": ("ARGS=--once --most 4 --restarts 1",),
    "simulate": ("SEEDS=5",),
    "cron": ("ARGS=--years 1 --zone UTC",),
    "mutants": ("ARGS='a .env file of others is used'",),
    "constraints": (),
    "audit": (),
    "man": (),
    "bench": ("ARGS=--quick --only W,agent,sqlite",),
    "docs": (),
    "house": (),
    "targets": ("ARGS=help --keep",),
    "clean": (),
}
"""The arguments with which each target shows that it works, and takes little time."""


def targets() -> list[str]:
    """Return the targets that `make help` lists."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE)


def _try(clone: Path, target: str) -> str | None:
    """Run a target; return what it printed if it failed."""
    with subprocess.Popen(
        ["make", "--no-print-directory", target, *SHORTEST[target]],
        cwd=clone,
        env=_environment(clone),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        killer = threading.Timer(TIMEOUT_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        killer.start()
        try:
            if target == "run":
                _stop_agent(clone, process)
            output, _ = process.communicate()
        finally:
            killer.cancel()
    # Without a network the audit says what it could not check: it was tried all the same.
    return output if process.returncode and "NOT AUDITED" not in output else None


def _stop_agent(clone: Path, process: "subprocess.Popen[str]") -> None:
    """Wait until the agent of `make run` has run its first task, and stop it as a person would."""
    assert process.stdout is not None
    for line in process.stdout:
        if "task.succeeded" in line:
            break
    program = clone / ".venv" / "bin" / "agent"
    subprocess.run([str(program), "stop"], cwd=clone, capture_output=True, check=False)


def _environment(clone: Path) -> dict[str, str]:
    """Return the environment of a new user: nothing of this one's agent, virtual environment or make."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AGENT_", "VIRTUAL_ENV", "PYTHON", "MAKE", "MFLAGS", *_OF_TARGETS))
    }
    return {**own, "HOME": str(clone.parent / "home")}


def main() -> int:
    """Try some targets, or all of them; return how many failed."""
    parser = argparse.ArgumentParser(prog="make targets", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *SHORTEST], metavar="TARGET")
    parser.add_argument(
        "--part", default="1/1", help="as in 2/3: every third target from the second"
    )
    parser.add_argument("--keep", action="store_true", help="one environment for all targets")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    chosen = (options.targets or targets())[part - 1 :: parts]
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        clone = Path(directory) / "clone"
        (Path(directory) / "home").mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for target in chosen:
            if not options.keep:
                shutil.rmtree(clone / ".venv", ignore_errors=True)
            begun = time.monotonic()
            problem = _try(clone, target)
            failed += problem is not None
            verdict = "works" if problem is None else "FAILED"
            print(f"make {target:<12} {verdict} in {time.monotonic() - begun:.0f} s", flush=True)
            if problem is not None:
                print(problem[-4000:], flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} targets work")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
