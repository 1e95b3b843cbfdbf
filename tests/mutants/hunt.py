"""Apply one mutant after another to the engine and report which test notices it.

    python -m tests.mutants.hunt [--jobs N] [--record] [NAME …]

Each mutant is applied to a copy of the tree. First runs the test that noticed it before (`noticed.json`;
`--record` writes what this run found). If that test no longer notices it, a fast part of the suite runs
until its first failure, the tests nearest to the broken module first. The test that failed must pass on
the unbroken copy: otherwise something else broke it, and the hunt continues without it. If no test
notices a mutant, a test is missing.
"""

import argparse
import contextlib
import itertools
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.breaks import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent.parent
COPIED = ("agent", "tests", "examples", "docs", "pyproject.toml", "config.toml", "README.md")
SUBSET = (
    "tests/tasks/rules/test_state.py",
    "tests/tasks/rules/external_work/test_work_leases.py",
    "tests/tasks/rules/retries/test_versions.py",
    "tests/tasks/rules/retries/test_kept_answers.py",
    "tests/queue/test_worker.py",
    "tests/server/routes/test_work.py",
    "tests/server/access/test_revocation.py",
    "tests/tasks/rules/firings/test_firing.py",
    "tests/tasks/worker/test_firings.py",
    "tests/triggers/schedules/test_schedule_plan.py",
    "tests/triggers/test_watch_plan.py",
    "tests/triggers/test_sync.py",
    "tests/triggers/commands/test_trigger_commands.py",
    "tests/steps/kinds/test_message.py",
    "tests/channels/messages/test_failures.py",
    "tests/channels/messages/test_origins.py",
    "tests/steps/agent/test_loop.py",
    "tests/steps/agent/tools/test_memory.py",
    "tests/tool_services/test_engine_control.py",
    "tests/approvals/test_models_cannot_answer.py",
    "tests/triggers/watchers/paths/test_directory_watch.py",
    "tests/triggers/watchers/paths/test_path_listener.py",
    "tests/steps/executors/test_job_status.py",
    "tests/steps/executors/test_jobs.py",
    "tests/steps/executors/test_process.py",
    "tests/steps/attempt/recorded_calls/test_calls.py",
    "tests/steps/attempt/recorded_calls/test_unknown.py",
    "tests/steps/kinds/test_mail.py",
    "tests/steps/kinds/test_mail_unknown.py",
    "tests/steps/spec/test_mail_config.py",
    "tests/steps/mail/test_server_addresses.py",
    "tests/steps/process/test_environment.py",
    "tests/config/test_file_exposure.py",
    "tests/steps/http/test_redirects.py",
    "tests/steps/attempt/test_captured_output.py",
    "tests/steps/attempt/test_containment.py",
    "tests/steps/attempt/recorded_calls/test_recorded_failures.py",
    "tests/steps/attempt/recorded_calls/test_changed_requests.py",
    "tests/steps/attempt/test_secrets.py",
    "tests/steps/attempt/test_secret_sources.py",
    "tests/core/files/test_environment_file.py",
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
    "tests/tasks/rules/retries/test_retried_children.py",
    "tests/tasks/rules/retries/test_retry_fork.py",
    "tests/tasks/state/test_unreadable_graphs.py",
    "tests/tasks/rules/test_child_tasks.py",
    "tests/core/files/test_process_lock.py",
    "tests/store/db/test_identity.py",
    "tests/tasks/worker/large_values/test_outages.py",
    "tests/tasks/commit/test_refused_records.py",
    "tests/upgrade/test_older_workers.py",
    "tests/store/db/test_pooler.py",
    "tests/tasks/read_models/test_event_tail.py",
    "tests/tasks/worker/test_file_descriptors.py",
    "tests/server/connections/test_header_limits.py",
    "tests/server/test_idempotency.py",
    "tests/channels/messages/test_writers.py",
    "tests/crash/test_commits.py",
    "tests/bad_input/test_directories.py",
    "tests/workflows/test_schema_cost.py",
    "tests/cli/output/test_inline_answers.py",
)
"""They cover every promise of the engine; PostgreSQL runs only where SQLite shows no defect."""
MOST_SECONDS = 900
NOTICED = Path(__file__).parent / "noticed.json"
"""The test that last noticed each mutant, by the mutant's name."""

# Without the parameters if they hold a space: the message follows them after a space too.
_FAILURE = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[\S*\](?=\s|$))?)", re.MULTILINE)


def copy_to(directory: Path) -> None:
    """Copy the tree, so that mutants can be applied to the copy."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            # With the compiled files: they fit the copies, whose times are the same.
            shutil.copytree(source, directory / name)
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


def recorded() -> dict[str, str]:
    """Return the test that noticed each mutant when it was last recorded."""
    return dict(json.loads(NOTICED.read_text(encoding="utf-8")))


def sound(tests: Iterable[str], copy: Path) -> set[str]:
    """Return those of the tests that pass on the unbroken copy: the others prove nothing."""
    wanted = sorted(set(tests))
    if not wanted:
        return set()
    done = _pytest(copy, *wanted, stops_at_first=False)
    failed = set(_FAILURE.findall(done.stdout))
    if done.returncode == 0:
        return set(wanted)
    # A test that is gone ends the whole run before it starts: then each is tried by itself.
    if done.returncode == 1:
        return {test for test in wanted if not any(name.startswith(test) for name in failed)}
    return {test for test in wanted if _pytest(copy, test).returncode == 0}


def hunt(mutant: Mutant, copy: Path, known: str | None = None) -> str | None:
    """Return the test that notices a mutant, or None; `known` passes on the unbroken copy."""
    try:
        with broken(mutant, copy):
            if known is not None and _pytest(copy, known).returncode == 1:
                return known
    except subprocess.TimeoutExpired:
        return known
    return _search(mutant, copy)


def _search(mutant: Mutant, copy: Path) -> str | None:
    """Return the first test of the subset that notices a mutant, or None."""
    unrelated: list[str] = []
    while True:
        try:
            with broken(mutant, copy):
                done = _pytest(copy, *nearest_first(mutant), *_without(unrelated))
        except subprocess.TimeoutExpired:
            return "the tests do not end"
        failure = _FAILURE.search(done.stdout)
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


def _pytest(
    copy: Path, *arguments: str, stops_at_first: bool = True
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", *(["-x"] if stops_at_first else []), "-q", "-n", "0",
         "-p", "no:cacheprovider", "-k", "not postgres", "--timeout", "60", *arguments],
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
    parser.add_argument("--record", action="store_true", help="write noticed.json")
    parser.add_argument("names", nargs="*", help="mutants by name; all without one")
    options = parser.parse_args()
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no such mutant: {', '.join(unknown)}")
    wanted = [known[name] for name in options.names] or list(MUTANTS)
    with tempfile.TemporaryDirectory(prefix="agent-mutants-") as directory:
        found = _hunt_all(wanted, Path(directory), options.jobs)
    noticed = {name: test for name, test in found.items() if test is not None}
    if options.record:
        _write({name: test for name, test in (recorded() | noticed).items() if name in known})
    print(f"{len(noticed)} of {len(wanted)} mutants were noticed")
    return 0 if len(noticed) == len(wanted) else 1


def _write(noticed: dict[str, str]) -> None:
    tests = {name: test for name, test in noticed.items() if test.startswith("tests/")}
    text = json.dumps(tests, indent=1, sort_keys=True, ensure_ascii=False)
    NOTICED.write_text(f"{text}\n", encoding="utf-8")


def _hunt_all(wanted: list[Mutant], directory: Path, jobs: int) -> dict[str, str | None]:
    """Hunt with a copy of the tree per job; return which test noticed each mutant."""
    copies: queue.Queue[Path] = queue.Queue()
    for number in range(jobs):
        copy = directory / str(number)
        copy.mkdir()
        copy_to(copy)
        copies.put(copy)

    before = recorded()
    passing = sound(
        (before[mutant.name] for mutant in wanted if mutant.name in before), directory / "0"
    )

    def one(mutant: Mutant) -> tuple[str, str | None]:
        known = before.get(mutant.name)
        copy = copies.get()
        began = time.monotonic()
        try:
            test = hunt(mutant, copy, known if known in passing else None)
        finally:
            copies.put(copy)
        by = test or "SURVIVED: " + mutant.why
        print(f"{mutant.name:<44} {by}  ({time.monotonic() - began:.0f} s)", flush=True)
        return mutant.name, test

    with ThreadPoolExecutor(jobs) as pool:
        return dict(pool.map(one, wanted))


if __name__ == "__main__":
    sys.exit(main())
