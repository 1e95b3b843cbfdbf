import pytest

from tests.mutants.breaks import MUTANTS, Mutant
from tests.mutants.hunt import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_break_still_fits(mutant: Mutant) -> None:
    """What a break changes is in the code, once, and what it makes of it is still Python."""
    text = (ROOT / mutant.path).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    compile(text.replace(mutant.old, mutant.new), mutant.path, "exec")


def test_there_are_thirty() -> None:
    """Every break has a name of its own, and there are enough of them."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30
