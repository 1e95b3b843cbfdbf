"""Functions of `python` steps are checked by their source; nothing of it runs."""

from pathlib import Path

import pytest

from agent.steps.kinds.function_source import find_problem

SOURCE = """
import functools
from os import path as paths
if True:
    def check(amount, vendor="x", *, ctx): ...
async def pay(amount: int, /, to: str, **more): ...
@functools.cache
def decorated(x): ...
value = len
class Maker:
    def __call__(self): ...
def twice(a): ...
twice = functools.partial(twice, 1)
raise SystemExit("it must not run")
"""


@pytest.fixture
def workflow(tmp_path: Path) -> str:
    """Return a workflow file beside a module."""
    (tmp_path / "funcs.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "open.py").write_text("from os.path import *\n", encoding="utf-8")
    (tmp_path / "broken.py").write_text("def f(:\n", encoding="utf-8")
    return str(tmp_path / "w.yaml")


@pytest.mark.parametrize(
    ("call", "given", "expected"),
    [
        ("funcs:check", {"amount"}, None),
        ("funcs:check", {"amount", "vendor"}, None),
        ("funcs:check", {"amout"}, "it takes (amount, vendor=…)"),
        ("funcs:check", set(), "missing a required argument: 'amount'"),
        ("funcs:check", None, None),
        ("funcs:pay", {"to"}, "missing a required"),
        ("funcs:chek", set(), "did you mean 'check'?"),
        ("funcs:decorated", {"anything"}, None),
        ("funcs:value", {"anything"}, None),
        ("funcs:Maker", {"anything"}, None),
        ("funcs:Maker.create", {"anything"}, None),
        ("funcs:paths", set(), None),
        ("funcs:twice", set(), None),
        ("open:join", set(), None),
        ("broken:f", set(), "broken.py cannot be loaded: line 1"),
        ("json:dumpz", set(), "there is no function 'dumpz'"),
        ("json.decoder:nothing", set(), "there is no function 'nothing'"),
        ("nowhere:f", set(), None),
        ("sys:exit", set(), None),
    ],
)
def test_a_call_is_checked_as_far_as_the_source_tells(
    workflow: str, call: str, given: set[str] | None, expected: str | None
) -> None:
    """What is known only when the module runs is not a problem."""
    found = find_problem(call, workflow, None if given is None else frozenset(given))
    assert (found is None) if expected is None else (expected in str(found))
