"""The Jinja environment of templates: plain data, a few filters, and bounds.

Jinja's own sandbox keeps a template from reaching Python. It does not stop one that renders 200 MB or
loops for ever, and it finds a dict's method before its key. So attributes are looked up in data first,
methods come from a short list, everything that makes text or repeats is charged to the `Meter` of the
rendering, and no constant is folded at compile time.
"""

from collections.abc import Mapping
from typing import Any, Final

from jinja2 import StrictUndefined, Undefined
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent.workflows.templates.filters import (
    allowed_filters,
    as_text,
    bounded_range,
    meter,
    metered_tests,
)
from agent.workflows.templates.limits import MAX_INTEGER_BITS, TemplateError, weight
from agent.workflows.templates.to_json import refuse

_METHODS: Final[dict[type, frozenset[str]]] = {
    str: frozenset(
        [
            "capitalize",
            "count",
            "endswith",
            "find",
            "index",
            "isalnum",
            "isalpha",
            "isdigit",
            "islower",
            "isnumeric",
            "isspace",
            "isupper",
            "lower",
            "lstrip",
            "partition",
            "removeprefix",
            "removesuffix",
            "rfind",
            "rindex",
            "rpartition",
            "rsplit",
            "rstrip",
            "split",
            "splitlines",
            "startswith",
            "strip",
            "swapcase",
            "title",
            "upper",
        ]
    ),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"count", "index"}),
    LoopContext: frozenset(
        [
            "index",
            "index0",
            "revindex",
            "revindex0",
            "first",
            "last",
            "length",
            "previtem",
            "nextitem",
            "cycle",
            "changed",
        ]
    ),
}


class Sandbox(ImmutableSandboxedEnvironment):
    """Looks names up in data, and allows a list of Python's methods."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self) -> None:
        # Folding constants would run a template's arithmetic while it is compiled, unmetered.
        super().__init__(
            undefined=StrictUndefined,
            autoescape=False,
            keep_trailing_newline=True,
            optimized=False,
            finalize=as_text,
        )
        self.globals = {"range": bounded_range}
        self.filters = allowed_filters()
        self.tests = metered_tests()

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Find a key of data, else a listed method; anything else is undefined."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        for owner, names in _METHODS.items():
            if isinstance(obj, owner) and attribute in names:
                return getattr(obj, attribute)
        return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Find a key or an index in data."""
        if isinstance(obj, Undefined):
            return obj[argument]
        if isinstance(obj, Mapping | list | tuple | str):
            try:
                return obj[argument]
            except (LookupError, TypeError):
                pass
        return self.undefined(obj=obj, name=argument)

    def is_safe_callable(self, obj: Any) -> bool:
        """Allow the listed methods and the environment's own functions, nothing else."""
        if obj is bounded_range:
            return True
        owner = getattr(obj, "__self__", None)
        name = getattr(obj, "__name__", "")
        return any(isinstance(owner, kind) and name in names for kind, names in _METHODS.items())

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call a function if that is safe, and charge its result."""
        if isinstance(__obj, Undefined):
            refuse(__obj)
        if not __self.is_safe_callable(__obj):
            raise SecurityError("this cannot be called in a template")
        arguments = (*args, *kwargs.values())
        if any(callable(value) and not isinstance(value, Undefined) for value in arguments):
            # The message of the called function would contain its memory address.
            raise TemplateError("a function cannot be given to another in a template")
        owner = getattr(__obj, "__self__", None)
        meter().charge(1 + (len(owner) // 64 if isinstance(owner, str | list | dict) else 0))
        if isinstance(owner, list):
            meter().charge(weight(owner))
        elif isinstance(owner, str) and args and isinstance(args[0], str):
            # `strip` searches its argument once for each character of the text.
            meter().charge(len(owner) * len(args[0]) // 65_536 if "strip" in __obj.__name__ else 0)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str):
            meter().charge_text(len(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute, after checking that the result is not too large."""
        meter().charge()
        if isinstance(left, int) and isinstance(right, int):
            _check_integers(operator, left, right)
        elif operator == "*":
            _check_repetition(left, right)
        elif operator == "%" and isinstance(left, str):
            raise TemplateError("text cannot be formatted with %; join the parts with ~")
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            meter().charge_text(len(left) + len(right))
        elif operator == "+" and isinstance(left, list | tuple):
            meter().charge(len(left) + (len(right) if isinstance(right, list | tuple) else 0))
        return super().call_binop(context, operator, left, right)


def _check_integers(operator: str, left: int, right: int) -> None:
    bits = max(left.bit_length(), right.bit_length())
    if operator == "**":
        bits = left.bit_length() * max(right, 1)
    elif operator == "*":
        bits = left.bit_length() + right.bit_length()
    if bits > MAX_INTEGER_BITS:
        raise TemplateError(f"the result of {operator} is too large a number")


def _check_repetition(left: Any, right: Any) -> None:
    for many, times in ((left, right), (right, left)):
        if isinstance(times, int):
            if isinstance(many, str):
                meter().charge_text(len(many) * max(times, 0))
            elif isinstance(many, list | tuple):
                meter().charge(len(many) * max(times, 0))
