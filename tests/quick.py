"""Run the tests nearest to the changed files, and a fast core: `make quick`.

    python -m tests.quick [--list]

The tests mirror the tree: `agent/tasks/rules/claiming.py` is tested in
`tests/tasks/rules/test_claiming.py`, or else by the test modules of the nearest directory. A file has
changed if it differs from the commit where this branch left `main`, committed or not. `make test`
also runs the tests of daemons and the measurements.
"""

import subprocess
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
CORE = (
    "tests/core",
    "tests/tasks/operator/test_state_table.py",
    "tests/tasks/rules/test_advance.py",
    "tests/tasks/state/test_state_machine.py",
    "tests/steps/attempt/recorded_calls/test_calls.py",
    "tests/workflows/compile",
)
"""Fast tests of what any change may break: state machines, rules, journal, compiler."""
MOST_MODULES = 10
"""More modules would take longer than a minute."""


def changed_files() -> list[str]:
    """Return the files that differ from where this branch left `main`, new ones included."""
    base = _git("merge-base", "main", "HEAD") or ["HEAD"]
    return sorted(
        {*_git("diff", "--name-only", base[0]), *_git("ls-files", "-o", "--exclude-standard")}
    )


def tests_near(changed: str) -> list[str]:
    """Return the test modules of one changed file; none if the tree does not show them."""
    path = PurePosixPath(changed)
    if path.suffix != ".py" or path.parts[0] not in ("agent", "tests"):
        return []
    if path.parts[0] == "tests":
        return [changed] if path.name.startswith("test_") and (ROOT / path).exists() else []
    directory = PurePosixPath("tests", *path.parts[1:-1])
    own = directory / f"test_{path.name}"
    if (ROOT / own).exists():
        return [str(own)]
    while directory.parts:
        if found := sorted((ROOT / directory).glob("test_*.py")):
            return [str(module.relative_to(ROOT)) for module in found]
        directory = directory.parent
    return []


def choose(changed: list[str]) -> list[str]:
    """Return the test modules to run: those near the changes, unless there are too many."""
    near = list(dict.fromkeys(module for name in changed for module in tests_near(name)))
    if len(near) <= MOST_MODULES:
        return near
    own = [module for module in near if module in changed]
    return own if len(own) <= MOST_MODULES else []


def main() -> int:
    """Run the chosen modules and the core."""
    chosen = choose(changed_files())
    print("near the changes:", *(chosen or ["(unknown, or too many: only the core)"]))
    if "--list" in sys.argv:
        return 0
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-m",
        "not process and not measured",
    ]
    return subprocess.run([*command, *CORE, *chosen], cwd=ROOT, check=False).returncode


def _git(*arguments: str) -> list[str]:
    """Return the lines that git prints; none where it fails or is missing."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


if __name__ == "__main__":
    sys.exit(main())
