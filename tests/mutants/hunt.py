"""Apply one mutant after another to the engine and report which test notices it.

    python -m tests.mutants.hunt [NAME …]

Each mutant is applied to a copy of the tree. A fast part of the suite runs on the copy until its
first failure. If no test notices a mutant, a test is missing.
"""

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.breaks import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent.parent
COPIED = ("agent", "tests", "examples", "docs", "pyproject.toml", "config.toml", "README.md")
SUBSET = (
    "tests/steps/attempt/test_calls.py",
    "tests/steps/attempt/test_unknown.py",
    "tests/steps/process/test_environment.py",
    "tests/config/test_file_exposure.py",
    "tests/steps/http/test_redirects.py",
    "tests/steps/attempt/test_containment.py",
    "tests/steps/attempt/test_recorded_failures.py",
    "tests/steps/attempt/test_changed_requests.py",
    "tests/steps/attempt/test_secrets.py",
    "tests/approvals/test_gate.py",
    "tests/tasks/rules/test_advance.py",
    "tests/tasks/rules/test_fanout.py",
    "tests/tasks/rules/test_waits.py",
    "tests/tasks/operator/test_control.py",
    # After the tests of single cases: a property test takes minutes to shrink a failure.
    "tests/tasks/commit/test_task_cache.py",
    "tests/tasks/commit/test_pipeline.py",
    "tests/tasks/rescue/test_workers.py",
    "tests/tasks/commit/test_faults.py",
    "tests/tasks/rules/test_claiming.py",
    "tests/test_recovery.py",
    "tests/approvals/test_answering.py",
    "tests/approvals/test_expiry.py",
    "tests/approvals/test_retry_fork.py",
    "tests/tasks/rules/test_retried_children.py",
    "tests/tasks/rules/test_retry_fork.py",
    "tests/tasks/state/test_unreadable_graphs.py",
    "tests/tasks/rules/test_child_tasks.py",
    "tests/core/test_process_lock.py",
    "tests/store/db/test_identity.py",
    "tests/tasks/worker/test_outages.py",
    "tests/tasks/commit/test_refused_records.py",
    "tests/upgrade/test_older_workers.py",
    "tests/store/db/test_pooler.py",
    "tests/tasks/read_models/test_event_tail.py",
    "tests/tasks/worker/test_file_descriptors.py",
    "tests/server/test_header_limits.py",
    "tests/server/test_idempotency.py",
    "tests/crash/test_commits.py",
    "tests/bad_input/test_directories.py",
    "tests/workflows/test_schema_cost.py",
)
"""They cover every promise of the engine. PostgreSQL runs only where SQLite cannot show the defect."""
MOST_SECONDS = 900


def copy_to(directory: Path) -> None:
    """Copy the tree, so that mutants can be applied to the copy."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, directory / name, ignore=ignored)
        else:
            shutil.copyfile(source, directory / name)


@contextlib.contextmanager
def broken(mutant: Mutant, copy: Path) -> Iterator[None]:
    """Apply a mutant to a copy until the block ends."""
    path = copy / mutant.path
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, (
        f"{mutant.name}: {mutant.path} must contain its text exactly once"
    )
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


def hunt(mutant: Mutant, copy: Path) -> str | None:
    """Return the first test that notices a mutant, or None."""
    try:
        with broken(mutant, copy):
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider",
                 "-k", "not postgres", "--timeout", "60", *SUBSET],
                cwd=copy,
                capture_output=True,
                text=True,
                check=False,
                timeout=MOST_SECONDS,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"timed out after {MOST_SECONDS} s"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if failed is not None:
        return failed[1]
    if done.returncode == 0:
        return None
    # A test that hangs ends the whole run; the end of the output names it.
    return f"exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-200:]}"


def main() -> int:
    """Hunt all mutants, or the named ones; the exit code is 1 if one survives."""
    wanted = [mutant for mutant in MUTANTS if not sys.argv[1:] or mutant.name in sys.argv[1:]]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="agent-mutants-") as directory:
        copy = Path(directory)
        copy_to(copy)
        for number, mutant in enumerate(wanted, 1):
            began = time.monotonic()
            caught = hunt(mutant, copy)
            survivors += caught is None
            by = caught or "SURVIVED: " + mutant.why
            seconds = time.monotonic() - began
            print(
                f"{number:2}/{len(wanted)}  {mutant.name:<55} {by}  ({seconds:.0f} s)", flush=True
            )
    print(f"{len(wanted) - survivors} of {len(wanted)} mutants were noticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
