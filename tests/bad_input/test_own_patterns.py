"""Our own regular expressions meet texts of others: none takes more than linear time."""

import importlib
import pkgutil
import re
import time
from typing import Any, Final

import pytest

import agent

LENGTH: Final = 12_000
SECONDS: Final = 1.0
"""Of the processor's time: a quadratic pattern takes more for this length."""
UNITS: Final = [
    *("a", " ", "\n", "0", "{", "{{", "}}", ".", "/", "-", '"', "<", "[", ":"),
    *("a.", "a[0]", "1h", "a ", "{{ ", "a@", "a://", "a=", "a+"),
]


def own_patterns() -> dict[str, re.Pattern[Any]]:
    """Return every compiled pattern of the package by its module and name."""
    found: dict[str, re.Pattern[Any]] = {}
    for each in pkgutil.walk_packages(agent.__path__, "agent."):
        if each.name.endswith("__main__") or ".migrations" in each.name:
            continue
        for name, value in vars(importlib.import_module(each.name)).items():
            if isinstance(value, re.Pattern):
                found[f"{each.name}.{name}"] = value
    assert len(found) > 20
    return found


@pytest.mark.timeout(600)
def test_no_pattern_of_ours_is_slow() -> None:
    """Texts that repeat what patterns are made of, behind what they begin with, without an end."""
    for name, pattern in own_patterns().items():
        begins = re.match(r"[\w`:/<]*", str(pattern.pattern))
        for prefix in {"", begins[0] if begins is not None else ""}:
            for unit in UNITS:
                text = prefix + unit * (LENGTH // len(unit)) + "\1"
                given = text.encode() if isinstance(pattern.pattern, bytes) else text
                began = time.thread_time()
                pattern.search(given)
                pattern.fullmatch(given)
                assert time.thread_time() - began < SECONDS, (name, prefix, unit)
