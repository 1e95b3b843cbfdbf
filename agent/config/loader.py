"""Reads the configuration and reports what is wrong with it.

Values come from the models' defaults, then `config.toml`, then the environment
(`AGENT_ENGINE__SLOTS=10` sets `slots` in `[engine]`; a list is `a, b` or JSON). Every unknown key and
every value out of bounds is reported at once, with its file, its line and what was probably meant.
"""

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError

from agent.config.mail import ImapSettings, MailSettings
from agent.config.models import McpSettings, ModelSettings
from agent.config.settings import Settings, sections
from agent.core.secret_reference import FORMS

DEFAULT_FILE = "config.toml"
_PREFIX = "AGENT_"
_NAMED: dict[str, type[BaseModel]] = {
    "models": ModelSettings,
    "mcp": McpSettings,
    "mail": MailSettings,
}
"""Sections with one subsection for each name that the file gives."""


_MAY_HOLD_SECRETS = (["artifacts"], ["artifacts", "url"])
"""Where a message does not repeat what the file says."""
_NOT_SECTIONS = {"base", "file", "trusted_by_environment"}
"""Fields of the settings that say where they come from."""


class ConfigError(Exception):
    """The configuration cannot be used; `problems` says all that is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load(path: str | Path | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the configuration: `path`, else `AGENT_CONFIG`, else `config.toml` here if there."""
    named = path or environment.get("AGENT_CONFIG")
    file = Path(named or DEFAULT_FILE)
    text = _read(file, is_required=bool(named))
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{file}: this is not TOML: {error}"]) from None
    problems = _check_file(file, text, document)
    overrides, bad = _read_environment(environment)
    problems += bad
    if problems:
        raise ConfigError(problems)
    for (section, key), value in overrides.items():
        _put(document, section, key, value)
    if environment.get("AGENT_HOME"):
        document.setdefault("agent", {})["home"] = str(Path(environment["AGENT_HOME"]).absolute())
    problems = [f"{'.'.join(path)}: {message}" for path, message in _problems_of(document)]
    if problems:
        raise ConfigError(problems)
    trusted = tuple(overrides.get(("agent", f"trusted_{who}"), []) for who in ("users", "groups"))
    return Settings.model_validate(
        document
        | {
            "base": file.absolute().parent,
            "file": file.absolute() if file.exists() else None,
            "trusted_by_environment": trusted,
        }
    )


def _read(file: Path, *, is_required: bool) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        if is_required:
            raise ConfigError([f"{file}: there is no such configuration file"]) from None
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}: cannot be read: {error}"]) from None


def _check_file(file: Path, text: str, document: dict[str, Any]) -> list[str]:
    """Return what is wrong with the file's own values, each with its line."""
    placed = [(_line_of(text, path), path, message) for path, message in _problems_of(document)]
    return [f"{file}:{line}: {'.'.join(path)}: {message}" for line, path, message in sorted(placed)]


def _problems_of(document: dict[str, Any]) -> Iterator[tuple[list[str], str]]:
    for name in _NOT_SECTIONS & set(document):
        yield [name], _unknown(name, _section_names(), "section")
    document = {name: value for name, value in document.items() if name not in _NOT_SECTIONS}
    try:
        Settings.model_validate(document)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            path = [str(part) for part in problem["loc"]]
            yield path, _message(path, problem)


def _message(path: list[str], problem: Any) -> str:
    """Write one of pydantic's errors for the person who wrote the file."""
    if problem["type"] == "extra_forbidden":
        if len(path) == 1:
            return _unknown(path[0], _section_names(), "section")
        section = _section_at(path[:-1])
        known = _section_names() if section is None else _keys_of(section)
        return _unknown(path[-1], known, "key" if section else "section")
    if problem["type"] in {"model_type", "model_attributes_type"}:
        return f"is a section; write [{'.'.join(path)}] and its keys below it"
    if path[0] in ("models", "channels", "artifacts", "mail") and path[-1].endswith(
        ("key", "token", "secret", "password")
    ):
        # The value may be the secret itself: the message does not repeat it.
        what = path[-1]
        return f"must say where the {what} is, as {FORMS}, and is not the {what} itself"
    if (
        path[0] in ("mcp", "secrets")
        or path[:2] == ["artifacts", "options"]
        or path in _MAY_HOLD_SECRETS
    ):
        # The same for values of its environment, its headers, its options and its URL.
        return str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    if path == ["database", "url"] and problem["type"] == "string_pattern_mismatch":
        return 'must be empty, "sqlite:///path" or "postgresql://…"'
    message = str(problem["msg"]).removeprefix("Value error, ")
    return message.removeprefix("Input ") + f", not {problem['input']!r}"


def _section_at(path: list[str]) -> type[BaseModel] | None:
    """Return the model of a section, also of one whose name the file gives."""
    if path[:1] == ["mail"] and path[2:] == ["imap"]:
        return ImapSettings
    return _NAMED.get(path[0]) or sections().get(".".join(path))


def _keys_of(section: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]


def _section_names() -> list[str]:
    return [*sections(), *_NAMED]


def _unknown(name: str, known: list[str], what: str) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else "known are " + ", ".join(known)
    return f"there is no such {what}; {hint}"


def _line_of(text: str, path: list[str]) -> int:
    """Return the line on which a key is set, or its section begins."""
    import tomlkit

    # The parser keeps no line numbers but writes back exactly what it read: a comment put beside
    # the item shows its line.
    mark = "\0here"
    document = tomlkit.parse(text)
    item: Any = document
    for name in path:
        if not hasattr(item, "keys") or name not in item:
            break
        item = item.item(name)
    if item is document:
        return 1
    item.trivia.comment = mark
    written = tomlkit.dumps(document)
    before = written[: max(written.find(mark), 0)]
    inside = 0 if hasattr(item, "keys") else item.as_string().count("\n")
    return before.count("\n") + 1 - inside


def _read_environment(
    environment: Mapping[str, str],
) -> tuple[dict[tuple[str, str], Any], list[str]]:
    """Return the values that `AGENT_SECTION__KEY` variables set, and what is wrong with them."""
    values: dict[tuple[str, str], Any] = {}
    problems: list[str] = []
    for variable in sorted(environment):
        words, separator, key = variable.removeprefix(_PREFIX).lower().rpartition("__")
        section_name = words.replace("__", ".")
        if not variable.startswith(_PREFIX) or not separator:
            continue
        section = sections().get(section_name)
        if section is None:
            problems.append(f"{variable}: {_unknown(section_name, list(sections()), 'section')}")
        elif key not in section.model_fields:
            problems.append(f"{variable}: {_unknown(key, list(section.model_fields), 'key')}")
        else:
            value = _from_text(environment[variable], section.model_fields[key].annotation)
            found = _problems_of(_put({}, section_name, key, value))
            # Rules about a whole section are checked after all its values are known.
            problems += [f"{variable}: {message}" for path, message in found if key in path]
            values[section_name, key] = value
    return values, problems


def _put(document: dict[str, Any], section: str, key: str, value: Any) -> dict[str, Any]:
    """Set a value in a section, which may be one of another's; return the document."""
    inner = document
    for name in section.split("."):
        inner = inner.setdefault(name, {})
    inner[key] = value
    return document


def _from_text(text: str, annotation: Any) -> Any:
    """Read a variable as the field's type; what does not fit stays text and is refused as such."""
    if get_origin(annotation) is list:
        if text.lstrip().startswith("["):
            try:
                return json.loads(text)
            except ValueError:
                return text
        return [part.strip() for part in text.split(",") if part.strip()]
    if annotation is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if annotation in (int, float):
        try:
            return annotation(text)
        except ValueError:
            return text
    return text
