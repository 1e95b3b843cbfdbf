import json
from pathlib import Path

import pytest

from tests.mutants.breaks import MUTANTS, Mutant
from tests.mutants.hunt import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_code(mutant: Mutant) -> None:
    """Its old text occurs exactly once in its file, and the changed file is still valid Python."""
    text = (ROOT / mutant.path).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    compile(text.replace(mutant.old, mutant.new), mutant.path, "exec")


def test_mutant_names_are_unique_and_at_least_thirty() -> None:
    """No two mutants share a name, and none has been lost: there are at least 30."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_no_mutant_is_lost() -> None:
    """Those that the engine was first judged by are frozen with their reasons; only what they change moves."""
    frozen = json.loads((Path(__file__).parent / "frozen.json").read_text(encoding="utf-8"))
    assert frozen.items() <= {mutant.name: mutant.why for mutant in MUTANTS}.items()


CRASHES_THE_RUNNER = {"an exception whose text raises is not contained"}
"""Noticed by the end of the whole run, and so by no test of its own."""


def test_each_mutant_names_the_test_that_noticed_it() -> None:
    """`make mutants ARGS=--record` writes them."""
    noticed = json.loads((Path(__file__).parent / "noticed.json").read_text(encoding="utf-8"))
    assert {mutant.name for mutant in MUTANTS} - CRASHES_THE_RUNNER == noticed.keys()
