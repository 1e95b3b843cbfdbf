"""Tokens on disk: files that only the owner can read, with hashes instead of tokens."""

import json
from pathlib import Path

import pytest

from agent.core.ids import content_hash
from agent.core.scopes import SCOPES
from agent.server.access.grants import TokenError, TokenGrant
from agent.server.access.tokens import OWNER, Tokens
from tests.support.server import wait_for


def test_the_owners_token_is_created_once(tmp_path: Path) -> None:
    """Its file is readable by the owner alone; it stays the same and has every scope."""
    tokens = Tokens(tmp_path / "home")
    tokens.ensure_owner()
    path = tokens.owner_file
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text().strip()
    assert len(text) > 40
    path.chmod(0o644)
    tokens.ensure_owner()
    assert path.read_text().strip() == text
    assert path.stat().st_mode & 0o777 == 0o600
    grant = tokens.grant_of(text)
    assert grant is not None
    assert grant.scopes == set(SCOPES)


@pytest.mark.parametrize("text", ["", " ", "owner", "wrong", "\0", "\udc80"])
def test_other_texts_are_not_tokens(tmp_path: Path, text: str) -> None:
    """An empty token or a token's name is refused, also when there is no file."""
    tokens = Tokens(tmp_path)
    assert tokens.grant_of(text) is None
    tokens.ensure_owner()
    assert tokens.grant_of(text) is None
    tokens.owner_file.write_text("")
    assert tokens.grant_of(text) is None
    assert Tokens(tmp_path).grant_of(text) is None


def test_created_tokens_are_stored_as_hashes(tmp_path: Path) -> None:
    """A token's text is nowhere on disk; other instances see new and revoked tokens."""
    tokens, others = Tokens(tmp_path), Tokens(tmp_path)
    text = tokens.create("phone", ["approve"], "2026-01-01T00:00:00.000Z")
    path = tmp_path / "tokens.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert text not in path.read_text()
    grant = others.grant_of(text)
    assert grant is not None
    assert grant == TokenGrant("phone", frozenset({"read", "approve"}), content_hash(text))
    assert others.listed() == [
        {
            "name": "phone",
            "scopes": ["approve"],
            "created_at": "2026-01-01T00:00:00.000Z",
            "expires": None,
        }
    ]
    tokens.revoke("phone")
    assert Tokens(tmp_path).grant_of(text) is None
    wait_for(lambda: others.grant_of(text) is None)


def test_invalid_tokens_are_not_created(tmp_path: Path) -> None:
    """Unknown scopes, no scopes, a taken name and the owner's name are refused."""
    tokens = Tokens(tmp_path)
    tokens.create("a", ["read"], None)
    for name, scopes in (
        ("b", []), ("b", ["everything"]), ("b", ["read", "x"]), ("a", ["read"]),
        ("owner", ["read"]), ("", ["read"]), ("a\nb", ["read"]),
    ):  # fmt: skip
        with pytest.raises(TokenError):
            tokens.create(name, scopes, None)
    with pytest.raises(TokenError, match="there is no scope 'x': use read, operate"):
        tokens.create("b", ["read", "x"], None)
    for name in ("unknown", "owner"):
        with pytest.raises(TokenError):
            tokens.revoke(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "{}x",
        json.dumps([{"name": "a"}]),
        json.dumps([{"name": "a", "scopes": ["admin"], "hash": "ä"}]),
    ],
)
def test_a_damaged_file_admits_only_the_owner(tmp_path: Path, text: str) -> None:
    """A damaged file grants nothing, and does not lock the owner out."""
    tokens = Tokens(tmp_path)
    tokens.ensure_owner()
    (tmp_path / "tokens.json").write_text(text)
    assert tokens.grant_of("anything") is None
    owner = tokens.grant_of(tokens.owner_file.read_text().strip())
    assert owner is not None
    assert owner.name == OWNER
    with pytest.raises(TokenError, match="is damaged"):
        tokens.create("another", ["read"], None)


def test_a_grant_ends_with_its_token(tmp_path: Path) -> None:
    """A new token with the same name and scopes does not renew a revoked grant."""
    tokens = Tokens(tmp_path)
    grant = tokens.grant_of(tokens.create("phone", ["read"], None))
    assert grant is not None
    assert tokens.still_holds(grant)
    tokens.revoke("phone")
    tokens.create("phone", ["read"], None)
    wait_for(lambda: not tokens.still_holds(grant))
