"""Apply one mutant after another to the engine and report which test notices it.

    python -m tests.mutants.hunt [--jobs N] [NAME …]

Each mutant is applied to a copy of the tree, on which a fast part of the suite runs until its first
failure, the tests nearest to the broken module first. The test that failed must pass on the unbroken
copy: otherwise something else broke it, and the hunt continues without it. If no test
notices a mutant, a test is missing.
"""

import argparse
import contextlib
import itertools
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.breaks import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent.parent
COPIED = ("agent", "tests", "examples", "docs", "pyproject.toml", "config.toml", "README.md")
SUBSET = (
    "tests/tasks/rules/test_state.py",
    "tests/tasks/rules/test_firing.py",
    "tests/tasks/worker/test_firings.py",
    "tests/triggers/test_schedule_plan.py",
    "tests/triggers/test_watch_plan.py",
    "tests/triggers/test_sync.py",
    "tests/triggers/test_commands.py",
    "tests/steps/kinds/test_message.py",
    "tests/channels/messages/test_failures.py",
    "tests/channels/messages/test_origins.py",
    "tests/steps/agent/test_loop.py",
    "tests/steps/agent/tools/test_memory.py",
    "tests/tool_services/test_engine_control.py",
    "tests/approvals/test_models_cannot_answer.py",
    "tests/triggers/watchers/test_directory_watch.py",
    "tests/triggers/watchers/test_path_listener.py",
    "tests/steps/attempt/test_calls.py",
    "tests/steps/attempt/test_unknown.py",
    "tests/steps/kinds/test_mail.py",
    "tests/steps/kinds/test_mail_unknown.py",
    "tests/steps/spec/test_mail_config.py",
    "tests/steps/mail/test_server_addresses.py",
    "tests/steps/process/test_environment.py",
    "tests/config/test_file_exposure.py",
    "tests/steps/http/test_redirects.py",
    "tests/steps/attempt/test_containment.py",
    "tests/steps/attempt/test_recorded_failures.py",
    "tests/steps/attempt/test_changed_requests.py",
    "tests/steps/attempt/test_secrets.py",
    "tests/steps/attempt/test_secret_sources.py",
    "tests/core/test_environment_file.py",
    "tests/approvals/test_gate.py",
    "tests/tasks/rules/test_advance.py",
    "tests/tasks/rules/test_fanout.py",
    "tests/tasks/rules/test_waits.py",
    "tests/tasks/rules/test_conversations.py",
    "tests/tasks/operator/test_control.py",
    # After the tests of single cases: a property test takes minutes to shrink a failure.
    "tests/tasks/rules/test_state_property.py",
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
    "tests/channels/messages/test_writers.py",
    "tests/crash/test_commits.py",
    "tests/bad_input/test_directories.py",
    "tests/workflows/test_schema_cost.py",
    "tests/cli/output/test_inline_answers.py",
)
"""They cover every promise of the engine; PostgreSQL runs only where SQLite shows no defect."""
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
    assert text.count(mutant.old) == 1, f"{mutant.name}: its text is not in {mutant.path} once"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


def nearest_first(mutant: Mutant) -> list[str]:
    """Return the subset's files, those that mirror the broken module's place in the tree first."""
    near = mutant.path.removeprefix("agent/").split("/")

    def distance(path: str) -> int:
        parts = path.removeprefix("tests/").split("/")
        shared = itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(near, parts, strict=False)
        )
        return -len(list(shared))

    return sorted(SUBSET, key=distance)


def hunt(mutant: Mutant, copy: Path) -> str | None:
    """Return the first test that notices a mutant, or None."""
    unrelated: list[str] = []
    while True:
        try:
            with broken(mutant, copy):
                done = _pytest(copy, *nearest_first(mutant), *_without(unrelated))
        except subprocess.TimeoutExpired:
            return "the tests do not end"
        failure = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        if failure is None:
            # A test that never ends ends the whole run; its last lines say which.
            last = (done.stdout + done.stderr).strip()[-200:]
            return None if done.returncode == 0 else f"exit code {done.returncode}: {last}"
        test = failure[1]
        if test in unrelated or _pytest(copy, test.partition("[")[0]).returncode == 0:
            return test
        unrelated.append(test)


def _without(tests: list[str]) -> list[str]:
    return [argument for test in tests for argument in ("--deselect", test)]


def _pytest(copy: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider",
         "-k", "not postgres", "--timeout", "60", *arguments],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
        timeout=MOST_SECONDS,
    )  # fmt: skip


def main() -> int:
    """Hunt all mutants, or the named ones; the exit code is 1 if one survives."""
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument("names", nargs="*", help="mutants by name; all without one")
    options = parser.parse_args()
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no such mutant: {', '.join(unknown)}")
    wanted = [known[name] for name in options.names] or list(MUTANTS)
    with tempfile.TemporaryDirectory(prefix="agent-mutants-") as directory:
        survivors = _hunt_all(wanted, Path(directory), options.jobs)
    print(f"{len(wanted) - survivors} of {len(wanted)} mutants were noticed")
    return 1 if survivors else 0


def _hunt_all(wanted: list[Mutant], directory: Path, jobs: int) -> int:
    """Hunt with a copy of the tree per job; return how many breaks survived."""
    copies: queue.Queue[Path] = queue.Queue()
    for number in range(jobs):
        copy = directory / str(number)
        copy.mkdir()
        copy_to(copy)
        copies.put(copy)

    def one(mutant: Mutant) -> bool:
        copy = copies.get()
        began = time.monotonic()
        try:
            test = hunt(mutant, copy)
        finally:
            copies.put(copy)
        by = test or "SURVIVED: " + mutant.why
        print(f"{mutant.name:<44} {by}  ({time.monotonic() - began:.0f} s)", flush=True)
        return test is None

    with ThreadPoolExecutor(jobs) as pool:
        return sum(pool.map(one, wanted))


if __name__ == "__main__":
    sys.exit(main())
