"""Classes of fields that behave as the standard ones do."""

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from pydantic import TypeAdapter

from agent.core.quick_classes import quick_dataclasses


@quick_dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    """A value."""

    name: str
    count: int = 3
    members: list[int] = quick_dataclasses.field(default_factory=list)
    note: str = quick_dataclasses.field(default="", compare=False, repr=False)


@quick_dataclasses.dataclass(slots=True, eq=False)
class Changing:
    """A mutable object with an identity."""

    value: int


@quick_dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    """A value that checks itself, without slots."""

    low: int
    high: int = 9

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


def test_values_are_equal_hashed_and_shown_by_their_fields() -> None:
    """Fields that are left out of comparison and of the text stay out."""
    assert Frozen("a") == Frozen("a", 3, [], "other")
    assert Frozen("a") != Frozen("b")
    other: Any = ("a", 3, [])
    assert Frozen("a") != other
    assert hash(Frozen("a", members=())) == hash(Frozen("a", members=()))  # type: ignore[arg-type]
    assert repr(Frozen("a", note="hidden")) == "Frozen(name='a', count=3, members=[])"
    assert Changing(1) != Changing(1)


def test_each_object_has_its_own_default_list() -> None:
    """A default that is made is made for each object."""
    one, two = Frozen("a"), Frozen("a")
    one.members.append(1)
    assert two.members == []


def test_a_frozen_object_refuses_changes_and_has_no_other_attributes() -> None:
    """With slots, a mistyped name is an error too."""
    value: Any = Frozen("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del value.name
    changing: Any = Changing(1)
    changing.value = 2
    with pytest.raises(AttributeError):
        changing.valeu = 3


def test_missing_and_unknown_arguments_are_errors() -> None:
    """As of any function."""
    make: Any = Frozen
    for arguments, named in (((), {}), (("a",), {"nmae": "b"}), (("a", 1, [], "", 5), {})):
        with pytest.raises(TypeError):
            make(*arguments, **named)
    with pytest.raises(TypeError):
        make_checked: Any = Checked
        make_checked(1)


def test_the_check_after_the_start_runs() -> None:
    """`__post_init__` is called as usual."""
    assert Checked(low=2).high == 9
    with pytest.raises(ValueError, match="above"):
        Checked(low=10)


def test_patterns_and_replacement_use_the_fields() -> None:
    """Positions in a pattern are the order of the fields."""
    match quick_dataclasses.replace(Frozen("a"), count=5):
        case Frozen(name, count):
            assert (name, count) == ("a", 5)
        case _:
            pytest.fail("no match")


@pytest.mark.parametrize("value", [Frozen("a", 1, [2]), Checked(low=1)])
def test_objects_are_copied_and_pickled(value: Any) -> None:
    """Also frozen ones, whose attributes cannot be set."""
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_the_standard_functions_and_pydantic_know_the_fields() -> None:
    """They are described when they are asked for."""
    frozen: Any = Frozen
    is_known = dataclasses.is_dataclass(frozen)
    assert is_known
    assert [field.name for field in dataclasses.fields(frozen)] == [
        "name",
        "count",
        "members",
        "note",
    ]
    assert dataclasses.asdict(frozen("a")) == {"name": "a", "count": 3, "members": [], "note": ""}
    assert dataclasses.replace(frozen("a"), count=1) == Frozen("a", 1)
    assert TypeAdapter(Checked).validate_python({"low": 1}) == Checked(low=1)
    with pytest.raises(ValueError, match="int_parsing"):
        TypeAdapter(Checked).validate_python({"low": "x"})
