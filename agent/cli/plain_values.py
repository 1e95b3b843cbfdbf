"""Keeps typer from loading pydantic for values that need no conversion.

Typer converts every argument with a pydantic adapter, and loading pydantic costs more than most
commands. Text is text already, defaults have their type, and whole numbers are quickly read. All
else, and every value that may be wrong, is left to typer, which has the messages for it.
"""

from collections.abc import Callable
from typing import Any


def keep(command: Any) -> None:
    """Let the parameters of a command take plain values as they are."""
    parameters_of = command.get_params

    def get_params(context: Any) -> list[Any]:
        # Here, since `--help` is a parameter that the command adds when it is asked for them.
        parameters: list[Any] = parameters_of(context)
        for parameter in parameters:
            _PlainFirst.convert(parameter)
        return parameters

    command.get_params = get_params


class _PlainFirst:
    """The converter of one parameter: plain values first, then typer's own."""

    @classmethod
    def convert(cls, parameter: Any) -> None:
        """Become the converter of a parameter; versions of typer without pydantic have none."""
        typers_own = getattr(parameter, "get_runtime_param", None)
        if typers_own is not None and not isinstance(typers_own, cls):
            parameter.get_runtime_param = cls(parameter, typers_own)

    def __init__(self, parameter: Any, fallback: Callable[[], Any]) -> None:
        self._descriptor = parameter.type_descriptor
        self._fallback = fallback

    def __call__(self) -> "_PlainFirst":
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as the type of the parameter; an error is typer's."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self._descriptor.parameter_info.parser is None:
            if self._is_plain(value):
                return value
            number = self._whole_number(value)
            if number is not None:
                return number
        return self._fallback().coerce(value, param=param, ctx=ctx)

    def _is_plain(self, value: Any) -> bool:
        annotation = self._descriptor.annotation
        if annotation == list[str]:
            return isinstance(value, list | tuple) and all(type(item) is str for item in value)
        return annotation in (str, int, float, bool) and type(value) is annotation

    def _whole_number(self, value: Any) -> int | None:
        info = self._descriptor.parameter_info
        if self._descriptor.annotation is not int or not isinstance(value, str):
            return None
        if not (value.isascii() and value.isdecimal() and len(value) < 10):
            return None
        number = int(value)
        is_below = info.min is not None and number < info.min
        is_above = info.max is not None and number > info.max
        return None if is_below or is_above else number
