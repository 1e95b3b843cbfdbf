"""`make simulate`: many seeds with progress, or one seed with a readable trace."""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.simulation.run import Result, run
from tests.simulation.scenario import Scenario, draw
from tests.simulation.shrinking import shrink

KEPT = Path(__file__).parent / "regressions"
_SHARD = 20


def main() -> int:
    """Run what the command line asks for; the exit code is 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="replay this one with its trace")
    parser.add_argument("--file", type=Path, help="replay a scenario that was written down")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--shrink", action="store_true", help="cut a failure down and keep it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to use")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        template = Path(directory) / "template.db"
        migrate.upgrade(Database(f"sqlite:///{template}"))
        if given.seed is not None or given.file is not None:
            scenario = Scenario.read(given.file) if given.file else draw(given.seed)
            return _replay(scenario, template, is_shrinking=given.shrink)
        seeds = range(given.first, given.first + given.seeds)
        if given.stop:
            return _run_until_one_fails(seeds, template)
        return _run_many(seeds, template, given.jobs)


def _replay(scenario: Scenario, template: Path, *, is_shrinking: bool) -> int:
    result = run(scenario, template, is_traced=True)
    print("\n".join(result.trace))
    print(_summary(result))
    if not result.problems or not is_shrinking:
        return 1 if result.problems else 0
    first = _kind(result.problems[0])

    def fails(smaller: Scenario) -> bool:
        return any(_kind(problem) == first for problem in run(smaller, template).problems)

    smallest = shrink(scenario, fails)
    path = KEPT / f"seed-{scenario.seed}.json"
    path.write_text(smallest.text(), encoding="utf-8")
    print(f"cut down and kept as {path}")
    return 1


def _kind(problem: str) -> str:
    """Return a problem without the ids, times and counts that differ between two runs."""
    return " ".join(word for word in problem.split() if not any(sign.isdigit() for sign in word))


def _summary(result: Result) -> str:
    lines = [f"  {problem}" for problem in result.problems] or ["  all is well"]
    summary = f"{result.callbacks} callbacks, {result.seconds:.0f} virtual s, {result.lives} lives"
    return "\n".join([f"{summary}, digest {result.digest[:16]}", *lines])


def _run_until_one_fails(seeds: range, template: Path) -> int:
    for seed in seeds:
        if problems := run(draw(seed), template).problems:
            print(f"seed {seed} fails:", *problems, sep="\n  ")
            return 1
    print(f"{len(seeds)} seeds, none failed")
    return 0


def _run_many(seeds: range, template: Path, jobs: int) -> int:
    shards = [seeds[start : start + _SHARD] for start in range(0, len(seeds), _SHARD)]
    failed: list[int] = []
    happened: Counter[str] = Counter()
    began = time.monotonic()
    done = 0
    with ProcessPoolExecutor(jobs) as pool:
        for found, counts in pool.map(_run_shard, shards, [template] * len(shards)):
            done += 1
            happened += counts
            for seed, problems in found:
                failed.append(seed)
                print(f"seed {seed} fails:", *problems[:5], sep="\n  ", flush=True)
            ran = min(done * _SHARD, len(seeds))
            rate = ran / (time.monotonic() - began)
            left = (len(seeds) - ran) / rate
            text = f"{ran} of {len(seeds)} seeds, {len(failed)} failed, {left:.0f} s left"
            if sys.stderr.isatty():
                print(f"\r{text}   ", end="", file=sys.stderr, flush=True)
            elif done % 25 == 0:
                print(text, file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print("\nwhat went wrong, and how often:")
    for what, count in sorted(happened.items()):
        print(f"  {what:<26}{count:>9,}")
    print(f"{len(seeds)} seeds in {seconds:.0f} s, {len(failed)} failed")
    for seed in failed:
        print(f"  make simulate SEED={seed}")
    return 1 if failed else 0


def _run_shard(seeds: range, template: Path) -> tuple[list[tuple[int, list[str]]], "Counter[str]"]:
    """Return the seeds that failed with their reasons, and the counts of all faults."""
    failures = []
    happened: Counter[str] = Counter()
    for seed in seeds:
        result = run(draw(seed), template)
        happened += result.happened
        if result.problems:
            failures.append((seed, result.problems))
    return failures, happened


if __name__ == "__main__":
    sys.exit(main())
