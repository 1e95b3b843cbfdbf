"""The syntax of references: one for all places that take one."""

import re

import pytest

from agent.core.secret_reference import PATTERN, Reference, parse, references


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("env:TOKEN", Reference("env", "TOKEN")),
        ("Bearer env:TOKEN", Reference("env", "TOKEN", "Bearer")),
        ("file:/run/token", Reference("file", "/run/token")),
        ("keyring:agent/github", Reference("keyring", "agent/github")),
        ("keyring:https://example.com/me@x", Reference("keyring", "https://example.com/me@x")),
        ("token exec:github-token", Reference("exec", "github-token", "token")),
    ],
)
def test_references_in_their_parts(text: str, reference: Reference) -> None:
    """A source, what it calls the secret, and the word in front; fields accept the bare form."""
    assert parse(text) == reference
    assert re.search(PATTERN, reference.text)


@pytest.mark.parametrize(
    "text",
    [
        "env:lower",
        "file:///etc/passwd",
        "exec:op read op://private/x",
        "exec:/usr/bin/op",
        "exec:",
        "exec:-x",
        "keyring:no-name",
        "keyring:/name",
        "keyring:service/",
        "see exec:github",
        "exec:github\nexec:other",
    ],
)
def test_other_texts_are_only_texts(text: str) -> None:
    """A command's words above all: a definition can name a command, and never give one."""
    assert parse(text) is None
    assert list(references({"a": [text]})) == []


def test_fields_refuse_a_command() -> None:
    """Where a reference is required, words of a command are an error."""
    assert not re.search(PATTERN, "exec:op read x")
    assert not re.search(PATTERN, "exec:sh;id")
