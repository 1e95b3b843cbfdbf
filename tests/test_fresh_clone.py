"""Every target of the Makefile has a form in which a fresh clone tries it."""

from pathlib import Path

import pytest

from tests import fresh_clone


def test_each_target_is_tried_in_a_fresh_clone() -> None:
    """`make targets` leaves out none that `make help` lists, and none is tried that has gone."""
    assert set(fresh_clone.targets()) == set(fresh_clone.SHORTEST)


def test_targets_do_not_get_the_arguments_of_make_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make exports them: `make targets ARGS="--part 1/3"` must not run `make simulate ARGS="--part 1/3"`."""
    monkeypatch.setenv("ARGS", "--part 1/3")
    assert "ARGS" not in fresh_clone._environment(Path())
