"""Secrets by reference: `env:NAME` and `file:PATH`, resolved at execution, never written down.

Only references that stand in the definition itself count. One that came out of a template is data,
and data must not be able to name a secret.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

from agent.steps.errors import DefiniteFailure
from agent.steps.outcome import Json

REDACTED: Final = "[redacted]"
MIN_LENGTH: Final = 4
"""Shorter values cannot be told from ordinary text."""

Place = tuple[str | int, ...]

# A header is often a word and a secret: `Bearer env:TOKEN`. An address `file://…` is none.
_reference = re.compile(
    r"^(?:(?P<word>(?i:Bearer|Basic|Token|ApiKey)) )?"
    r"(?:env:(?P<env>[A-Z_][A-Z0-9_]*)|file:(?P<file>(?!//)\S.*))$"
)


def references(value: Json, at: Place = ()) -> Iterator[Place]:
    """Find the places in a definition that hold a reference."""
    if isinstance(value, str):
        if _reference.match(value):
            yield at
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from references(member, (*at, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from references(member, (*at, index))


def files_named(value: Json) -> set[str]:
    """Return the files that references in a definition name."""
    if isinstance(value, str):
        found = _reference.match(value)
        return {found["file"]} if found and found["file"] else set()
    if isinstance(value, dict):
        return set().union(*map(files_named, value.values()))
    if isinstance(value, list):
        return set().union(*map(files_named, value))
    return set()


class Secrets:
    """The secrets that one attempt has resolved, so that nothing it writes shows them."""

    def __init__(self) -> None:
        self._hidden: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    @property
    def longest(self) -> int:
        """The length of the longest secret: text is cut nowhere inside one."""
        return max(map(len, self._hidden), default=0)

    def resolve(self, value: Json, places: frozenset[Place]) -> Json:
        """Return a value with the references at these places replaced by what they name."""
        if not places:
            return value
        return self._resolved(value, places, ())

    def hide(self, value: Json, places: frozenset[Place]) -> None:
        """Show nothing of what the references at these places name, as far as it is there now."""
        for place in places:
            with suppress(DefiniteFailure):
                self.resolve(value, frozenset({place}))

    def _resolved(self, value: Json, places: frozenset[Place], at: Place) -> Json:
        if isinstance(value, str):
            return self._read(value) if at in places else value
        if isinstance(value, dict):
            return {k: self._resolved(v, places, (*at, k)) for k, v in value.items()}
        if isinstance(value, list):
            return [self._resolved(v, places, (*at, n)) for n, v in enumerate(value)]
        return value

    def _read(self, reference: str) -> str:
        found = _reference.match(reference)
        assert found is not None
        if found["env"] is not None:
            secret = os.environ.get(found["env"])
            if secret is None:
                raise _missing(f"the environment variable {found['env']} is not set")
        else:
            try:
                secret = Path(found["file"]).expanduser().read_text(encoding="utf-8").strip("\r\n")
            except (OSError, UnicodeError) as problem:
                raise _missing(f"the file {found['file']} cannot be read: {problem}") from None
        self._hide(secret)
        return f"{found['word']} {secret}" if found["word"] else secret

    def _hide(self, secret: str) -> None:
        # As JSON and as part of an address it looks different.
        forms = {
            form
            for line in (secret, *secret.splitlines())
            for form in (line, json.dumps(line)[1:-1], quote(line, safe=""), quote_plus(line))
        }
        self._hidden |= {form for form in forms if len(form) >= MIN_LENGTH}
        if self._hidden:
            longest_first = sorted(self._hidden, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def redact(self, text: str) -> str:
        """Return a text without the secrets."""
        return text if self._pattern is None else self._pattern.sub(REDACTED, text)

    def redact_value(self, value: Json) -> Json:
        """Return a value without the secrets, in its texts and its keys."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return {
                self.redact(k) if isinstance(k, str) else k: self.redact_value(v)
                for k, v in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.redact_value(member) for member in value]
        return value


def _missing(problem: str) -> DefiniteFailure:
    return DefiniteFailure(problem, code="secret_missing", kind="input", may_retry=False)
