"""Every target of the Makefile has a form in which a fresh clone tries it."""

from tests import fresh_clone


def test_each_target_is_tried_in_a_fresh_clone() -> None:
    """`make targets` leaves out none that `make help` lists, and none is tried that has gone."""
    assert set(fresh_clone.targets()) == set(fresh_clone.SHORTEST)
