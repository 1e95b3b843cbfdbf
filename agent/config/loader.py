"""Reads the configuration and reports its problems.

Values come from the models' defaults, then the file (see `discovery`), then the environment
(`AGENT_ENGINE__SLOTS=10` sets `slots` in `[engine]`; a list is `a, b` or JSON), then `-c KEY=VALUE` of
the command line. Every unknown key and every value out of bounds is reported at once, with its file,
its line and the probable intention.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.config import discovery
from agent.config.discovery import DEFAULT_FILE, ConfigError, Place
from agent.config.keys import field_at, from_text, keys_of, put, section_at, section_names
from agent.config.problems import problems_of, unknown
from agent.config.settings import Settings, sections

__all__ = ["DEFAULT_FILE", "ConfigError", "Configuration", "load", "read"]

_PREFIX = "AGENT_"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings, and where each of them comes from."""

    settings: Settings
    place: Place
    text: str
    """Of the file; empty without one."""
    document: dict[str, Any]
    """The values of the file."""
    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    """`KEY=VALUE` of each `-c`."""
    variables: dict[str, str]
    """The variables of the environment that set a key, by key."""
    options: frozenset[str]
    """The keys that the command line sets."""

    def reread(self) -> "Configuration":
        """Read the file again, with the same environment and command line.

        A file that was created since, where there was none, is read too.
        """
        place = self.place
        if place.file is None and (place.base / DEFAULT_FILE).is_file():
            place = Place(place.base, place.base / DEFAULT_FILE, place.how)
        return read(place, self.environment, self.arguments)


@dataclass(slots=True)
class _Layer:
    """Values that override those of the file: by key, with their origins and problems."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def load(
    path: str | Path | None = None,
    environment: Mapping[str, str] = os.environ,
    options: Sequence[str] = (),
) -> Settings:
    """Read the configuration: `path`, else `AGENT_CONFIG`, else the one that is found."""
    return read(discovery.find(path, environment), environment, options).settings


def read(
    place: Place,
    environment: Mapping[str, str] = os.environ,
    options: Sequence[str] = (),
    text: str | None = None,
) -> Configuration:
    """Read the configuration at a place; `text` is checked in place of the file's own."""
    if text is None:
        text = "" if place.file is None else _read(place.file)
    document = _parse(place.file, text)
    variables, overrides = _read_environment(environment), _read_options(options)
    problems = _check_file(place.file, text, document) + variables.problems + overrides.problems
    if problems:
        raise ConfigError(problems)
    merged = _parse(place.file, text)
    for layer in (variables, overrides):
        for key, value in layer.values.items():
            put(merged, key.split("."), value)
    problems = [f"{'.'.join(path)}: {message}" for path, message in problems_of(merged)]
    if problems:
        raise ConfigError(problems)
    trusted = tuple(variables.values.get(f"agent.trusted_{who}", []) for who in ("users", "groups"))
    origin = {"base": place.base, "file": place.file, "trusted_by_environment": trusted}
    settings: Any = Settings.pydantic.model_validate(merged | origin)
    return Configuration(
        settings,
        place,
        text,
        document,
        environment,
        tuple(options),
        variables.origins,
        frozenset(overrides.values),
    )


def _parse(file: Path | None, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{file}: this is not TOML: {error}"]) from None
    except RecursionError:
        raise ConfigError([f"{file}: its values are nested too deeply"]) from None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}: cannot be read: {error}"]) from None


def _check_file(file: Path | None, text: str, document: dict[str, Any]) -> list[str]:
    """Return the problems of the file's own values, each with its line."""
    problems = list(problems_of(document))
    if not problems:
        return []
    from agent.config.toml_lines import line_of, lines_of

    lines = lines_of(text)
    placed = sorted((line_of(lines, path), path, message) for path, message in problems)
    return [f"{file}:{line}: {'.'.join(path)}: {message}" for line, path, message in placed]


def _read_environment(environment: Mapping[str, str]) -> _Layer:
    """Read the values that `AGENT_SECTION__KEY` variables set."""
    layer = _Layer()
    known = sections()
    for variable in sorted(environment):
        words, separator, key = variable.removeprefix(_PREFIX).lower().rpartition("__")
        name = words.replace("__", ".")
        if not variable.startswith(_PREFIX) or not separator:
            continue
        if name not in known:
            layer.problems.append(f"{variable}: {unknown(name, list(known), 'section')}")
        elif key not in known[name].model_fields:
            layer.problems.append(f"{variable}: {unknown(key, keys_of(known[name]), 'key')}")
        else:
            _take(layer, f"{name}.{key}", environment[variable], variable)
    if environment.get("AGENT_HOME"):
        layer.values["agent.home"] = str(Path(environment["AGENT_HOME"]).absolute())
        layer.origins["agent.home"] = "AGENT_HOME"
    return layer


def _read_options(options: Sequence[str]) -> _Layer:
    """Read the values of `-c KEY=VALUE`."""
    layer = _Layer()
    for option in options:
        key, separator, text = option.partition("=")
        if not separator:
            layer.problems.append(f"-c {option}: write KEY=VALUE, as in engine.slots=10")
        elif field_at(key.split(".")) is None:
            layer.problems.append(f"-c {key}: {unknown_key(key)}")
        else:
            _take(layer, key, text, f"-c {key}")
    return layer


def _take(layer: _Layer, key: str, text: str, origin: str) -> None:
    path = key.split(".")
    field = field_at(path)
    assert field is not None
    value = from_text(text, field.annotation)
    # Rules about a whole section are checked after all its values are known.
    for where, message in problems_of(put({}, path, value)):
        if where[: len(path)] == path:
            layer.problems.append(f"{origin}: {message}")
    layer.values[key] = value
    layer.origins[key] = origin


def unknown_key(key: str) -> str:
    """Say that there is no such key, and which one was probably meant."""
    path = key.split(".")
    section = section_at(path[:-1]) if len(path) > 1 else None
    if section is not None:
        return unknown(path[-1], keys_of(section), "key")
    every = [
        f"{name}.{own_key}" for name, model in sections().items() for own_key in keys_of(model)
    ]
    near = unknown(key, every, "key")
    return near if "did you mean" in near else unknown(path[0], section_names(), "section")
