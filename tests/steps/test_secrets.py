from pathlib import Path

import pytest

from agent.steps.secrets import Secrets, references


def test_references_are_found_where_they_stand() -> None:
    """A whole text, or an authorization word before it; other texts are only texts."""
    value = {
        "a": "env:TOKEN",
        "b": ["plain", "bearer file:/run/token"],
        "c": {
            "d": "see file:notes",
            "e": "file:///etc/passwd",
            "f": "{{ env:X }}",
            "g": "env:prod",
        },
    }
    assert set(references(value)) == {("a",), ("b", 1)}


def test_a_secret_is_hidden_in_every_form_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is, line by line, inside JSON and inside an address."""
    monkeypatch.setenv("TOKEN", 'p"ss/w rd')
    key = tmp_path / "key"
    key.write_text("line-one\nline-two\n")
    secrets = Secrets()
    given = {"t": "Basic env:TOKEN", "k": f"file:{key}", "data": "env:TOKEN"}
    resolved = secrets.resolve(given, frozenset({("t",), ("k",)}))
    assert resolved == {"t": 'Basic p"ss/w rd', "k": "line-one\nline-two", "data": "env:TOKEN"}
    written = ['x p"ss/w rd', 'p\\"ss/w rd', "p%22ss%2Fw%20rd", "p%22ss%2Fw+rd", "line-two"]
    for text in written:
        assert secrets.redact(text).removeprefix("x ") == "[redacted]"
    assert secrets.redact_value({"line-one": [{"k": "line-two"}, 1, None]}) == {
        "[redacted]": [{"k": "[redacted]"}, 1, None]
    }
