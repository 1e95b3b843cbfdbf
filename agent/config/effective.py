"""Every value that is in force, with its source; secrets are hidden."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.config.keys import leaves, value_at
from agent.config.loader import Configuration
from agent.config.settings import Settings
from agent.config.toml_lines import line_of, lines_of
from agent.core import secret_reference
from agent.core.logs.logging import HIDDEN, redact, redact_text

_QUERY_SECRET: Final = re.compile(
    r"(?P<start>[?&][^=&?\s]*(?:password|secret|token|key)[^=&\s]*=)[^&\s]+", re.IGNORECASE
)
_SECRET_OPTION: Final = re.compile(
    r"^--?[\w-]*(?:password|secret|token|key)[\w-]*(?P<value>=.*)?$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Value:
    """One value in force."""

    key: str
    value: Any
    """Values that may be secrets are hidden."""
    source: str
    """`default`, `FILE:LINE`, the name of a variable, or `command line`."""
    is_default: bool
    """Whether the value equals the default, wherever it comes from."""


def values(configuration: Configuration) -> Iterator[Value]:
    """Yield every value in force, in the order of the file."""
    lines = lines_of(configuration.text)
    defaults = dict(leaves(Settings()))
    for key, value in leaves(configuration.settings):
        source = _source(configuration, key, lines)
        is_default = source == "default" or (key in defaults and defaults[key] == value)
        yield Value(key, shown(key, value), source, is_default)


def _source(configuration: Configuration, key: str, lines: dict[tuple[str, ...], int]) -> str:
    if key in configuration.options:
        return "command line"
    if key in configuration.variables:
        return configuration.variables[key]
    path = key.split(".")
    if value_at(configuration.document, path) is None:
        return "default"
    return f"{configuration.place.file}:{line_of(lines, path)}"


def shown(key: str, value: Any) -> Any:
    """Return a value with possible secrets hidden; references to secrets stay."""
    name = key.rpartition(".")[2]
    match value:
        case str() if secret_reference.parse(value) is not None:
            return value
        case str():
            return _QUERY_SECRET.sub(rf"\g<start>{HIDDEN}", _hide(name, value))
        case Mapping() if name == "headers":
            return {member: _reference_or_hidden(item) for member, item in value.items()}
        case Mapping():
            return {member: shown(str(member), item) for member, item in value.items()}
        case list() if name == "args":
            return list(_arguments(value))
        case list():
            return [shown("", item) for item in value]
        case _:
            return value


def _hide(name: str, value: str) -> str:
    # An empty value is no secret, and says that nothing is set.
    return str(redact(value, name)) if value else value


def _reference_or_hidden(value: object) -> object:
    is_reference = isinstance(value, str) and secret_reference.parse(value) is not None
    return value if is_reference else HIDDEN


def _arguments(words: list[str]) -> Iterator[str]:
    """Hide the word after an option such as `--token`."""
    is_secret = False
    for word in words:
        option = _SECRET_OPTION.match(word)
        if is_secret and option is None:
            yield HIDDEN
        elif option is not None and option["value"]:
            yield f"{word.partition('=')[0]}={HIDDEN}"
        else:
            yield redact_text(word)
        is_secret = option is not None and not option["value"]
