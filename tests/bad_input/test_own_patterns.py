"""Our own regular expressions meet texts of others: none takes more than linear time."""

import importlib
import inspect
import pkgutil
import re
import time
from typing import Any, Final

import pytest

import agent

LENGTH: Final = 24_000
SECONDS: Final = 0.5
"""Of the processor's time: a quadratic pattern takes more for this length."""
UNITS: Final = [
    *("a", " ", "\n", "0", "{", "{{", "}}", ".", "/", "-", '"', "<", "[", ":"),
    *("a.", "a[0]", "1h", "a ", "{{ ", "a@", "a://", "a=", "a+", "- ", "??", ": "),
]
BOUNDED: Final = {"_TEMPLATE", "_TOKEN"}
"""Of `yaml_colours`, which colours no line of more than 500 characters."""


SEARCHES: Final = (".search(", ".sub(", ".subn(", ".findall(", ".finditer(", ".split(")


def own_patterns() -> dict[str, tuple[re.Pattern[Any], bool]]:
    """Return every compiled pattern by its module and name, and whether that module searches by it."""
    found: dict[str, tuple[re.Pattern[Any], bool]] = {}
    for each in pkgutil.walk_packages(agent.__path__, "agent."):
        if each.name.endswith("__main__") or ".migrations" in each.name:
            continue
        module = importlib.import_module(each.name)
        patterns = {n: v for n, v in vars(module).items() if isinstance(v, re.Pattern)}
        source = inspect.getsource(module) if patterns else ""
        for name, value in patterns.items():
            is_searched = any(f"{name}{word}" in source for word in SEARCHES)
            found[f"{each.name}.{name}"] = (value, is_searched)
    assert len(found) > 20
    assert {name.rpartition(".")[2] for name in found if "yaml_colours" in name} >= BOUNDED
    return found


@pytest.mark.timeout(600)
def test_no_pattern_of_ours_is_slow() -> None:
    """Texts that repeat what patterns are made of, behind what they begin with, without an end."""
    for name, (pattern, is_searched) in own_patterns().items():
        if "yaml_colours" in name and name.rpartition(".")[2] in BOUNDED:
            continue
        begins = re.match(r"[\w`:/<]*", str(pattern.pattern))
        for prefix in {"", begins[0] if begins is not None else ""}:
            for unit in UNITS:
                text = prefix + unit * (LENGTH // len(unit)) + "\1"
                given = text.encode() if isinstance(pattern.pattern, bytes) else text
                began = time.thread_time()
                # From every place in the text, or only from its beginning.
                if is_searched:
                    pattern.search(given)
                pattern.fullmatch(given)
                assert time.thread_time() - began < SECONDS, (name, prefix, unit)
