"""Defects of the engine that only a certain order of events shows, planted for the simulator to find."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import hunt
from tests.mutants.breaks import MUTANTS

SEEDS = 60
PLANTED = {
    "no fence": "was declared dead in transaction",
    "an unanswered commit counts as landed": "lost its claims, and is not dead",
    "send_by is ignored": "happened 2 times|recorded as failed .*, and happened",
    "acting before the time is over": "happened 2 times|recorded as failed .*, and happened",
    "fork relies on an answer for another input": "which was answered under another input",
}
"""What gives each away: nothing else would do, since a test must not pass for another's reason."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree that may be broken."""
    directory = tmp_path_factory.mktemp("planted")
    hunt.copy_to(directory)
    return directory


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_break_is_found_within_some_tens_of_seeds(name: str, copy: Path) -> None:
    """The simulated world is bad enough: workers come back at the worst moment, and so on."""
    (mutant,) = [each for each in MUTANTS if each.name == name]
    with hunt.broken(mutant, copy):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--stop", "--seeds", str(SEEDS)],
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.match(r"seed \d+ fails:", done.stdout), done.stdout + done.stderr
    assert re.search(PLANTED[name], done.stdout), done.stdout
