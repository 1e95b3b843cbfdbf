"""The problems of a configuration, in words for the person who wrote it."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from agent.config.keys import keys_of, section_at, section_names
from agent.config.settings import PLACES, Settings
from agent.core.secret_reference import FORMS

_MAY_HOLD_SECRETS = (["artifacts"], ["artifacts", "url"])
"""Where a message does not repeat what the file says."""


def problems_of(document: dict[str, Any]) -> Iterator[tuple[list[str], str]]:
    """Yield everything that is wrong with a document: the path of a key, and a message."""
    for name in PLACES & set(document):
        yield [name], unknown(name, section_names(), "section")
    document = {name: value for name, value in document.items() if name not in PLACES}
    try:
        Settings.pydantic.model_validate(document)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            path = [str(part) for part in problem["loc"]]
            yield path, _message(path, problem)


def unknown(name: str, known: list[str], what: str) -> str:
    """Describe an unknown word, with the nearest known one."""
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else "known are " + ", ".join(known)
    return f"there is no such {what}; {hint}"


def _message(path: list[str], problem: Any) -> str:
    """Write one of pydantic's errors for the person who wrote the file."""
    if problem["type"] == "extra_forbidden":
        if len(path) == 1:
            return unknown(path[0], section_names(), "section")
        section = section_at(path[:-1])
        known = section_names() if section is None else keys_of(section)
        return unknown(path[-1], known, "key" if section else "section")
    if problem["type"] == "missing":
        return "is required"
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
    if path[:2] == ["notify", "operator"]:
        # An address of Apprise holds a password: it is not repeated either.
        return (
            "must be a list of telegram:ID, slack:ID, terminal:USER, or apprise: with the place of its"
            f" address, as {FORMS}"
        )
    if path == ["database", "url"] and problem["type"] == "string_pattern_mismatch":
        return 'must be empty, "sqlite:///path" or "postgresql://…"'
    message = str(problem["msg"]).removeprefix("Value error, ")
    return message.removeprefix("Input ") + f", not {problem['input']!r}"
