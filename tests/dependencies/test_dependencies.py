"""What we depend on: bounded, pinned by hash for releases, and audited without false comfort."""

import re
import subprocess
import tomllib
from importlib import metadata
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.dependencies import audit

_PROJECT: dict[str, Any] = tomllib.loads(
    (audit.ROOT / "pyproject.toml").read_text(encoding="utf-8")
)
_DECLARED = [
    Requirement(text)
    for text in (
        *_PROJECT["project"]["dependencies"],
        *_PROJECT["project"]["optional-dependencies"]["openai"],
        *_PROJECT["project"]["optional-dependencies"]["mcp"],
        *_PROJECT["project"]["optional-dependencies"]["slack"],
        *_PROJECT["project"]["optional-dependencies"]["artifacts"],
    )
]
_BY_DATE = {"structlog", "tzdata", "fsspec"}
"""Their versions are dates: the next one is no break."""
_LINE = re.compile(
    r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+( ; [\w\s.'<>=!()]+)? \\"
    r"|    --hash=sha256:[0-9a-f]{64}( \\)?"
)


@pytest.mark.parametrize("requirement", _DECLARED, ids=str)
def test_the_next_major_version_is_not_taken_unseen(requirement: Requirement) -> None:
    """Each dependency has an upper bound, but for those whose versions are dates."""
    has_bound = any(part.operator == "<" for part in requirement.specifier)
    assert has_bound is (requirement.name not in _BY_DATE)


@pytest.mark.parametrize("requirement", _DECLARED, ids=str)
def test_the_constraints_cover_what_is_declared(requirement: Requirement) -> None:
    """The pinned version is one that `pyproject.toml` allows."""
    pins = {
        canonicalize_name(package.name): package
        for package in audit.pinned(audit.CONSTRAINTS.read_text(encoding="utf-8"))
    }
    (pin,) = pins[canonicalize_name(requirement.name)].specifier
    assert requirement.specifier.contains(pin.version)


@pytest.mark.parametrize("requirement", _DECLARED, ids=str)
def test_installed_versions_are_allowed(requirement: Requirement) -> None:
    """The tests run with versions that `pyproject.toml` allows."""
    if requirement.marker is None or requirement.marker.evaluate():
        assert requirement.specifier.contains(metadata.version(requirement.name))


def test_the_constraints_contain_only_packages_and_hashes() -> None:
    """No line has a registry, an address or a path."""
    lines = audit.CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if _LINE.fullmatch(line) is None] == []
    comments = [line for line in lines if line.startswith("#")]
    assert [line for line in comments if "/" in line or "." in line.strip("# :")] == []
    blocks = "\n".join(line for line in lines if not line.startswith("#")).split(" \\\n    --hash=")
    assert len(blocks) > 2 * len(_DECLARED), "each package has at least one hash"


def test_build_tools_are_sound() -> None:
    """Versions of setuptools before 78.1.1 write files outside their directory."""
    (tool,) = audit.oldest_build_tools()
    name, _, version = tool.partition("==")
    assert (name, Version(version) >= Version("78.1.1")) == ("setuptools", True)


def _package(name: str, **about: object) -> dict[str, object]:
    return {"name": name, "version": "1", **about}


@pytest.mark.parametrize(
    ("packages", "code", "shown"),
    [
        ([_package("a", vulns=[]), _package("b", vulns=[])], 0, "no known vulnerability in 2"),
        ([_package("a", vulns=[{"id": "X-1"}]), _package("b", vulns=[])], 1, "VULNERABLE a: X-1"),
        ([_package("a", vulns=[]), _package("b", skip_reason="unknown")], 3, "1 of 2 packages: b"),
        ([_package("a", vulns=[{"id": "X-1"}])], 1, "1 of 2 packages: b"),
        ([], 3, "2 of 2 packages"),
    ],
)
def test_silence_is_no_soundness(
    packages: list[dict[str, object]], code: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package that was not audited, or is unknown to the database, is reported and is not a success."""
    assert audit.judge(audit.read({"dependencies": packages}), ["a", "b"]) == code
    assert shown in capsys.readouterr().out


def test_an_audit_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """When pip-audit cannot reach the database it leaves no answer, and none is made up."""

    def fail(*_: object, **__: object) -> None:
        """End as pip-audit does without a network: with an error and without a file."""

    monkeypatch.setattr(subprocess, "run", fail)
    assert audit.ask("a==1\n") == {}


def test_licences_are_read_from_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    """As an expression, a classifier or a word, wherever a package puts it."""
    packages = [Requirement("pydantic==2"), Requirement("no-such-package==1")]
    audit.print_licences(packages)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["pydantic", "==2", "MIT"]
    assert "(not installed here)" in shown[1]


def test_pins_are_read_without_their_hashes() -> None:
    """Markers stay, continuation lines and comments do not matter."""
    text = "# made\na-b==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\nc==2\n"
    first, second = audit.pinned(text)
    assert (first.name, str(first.specifier), str(second)) == ("a-b", "==1.0", "c==2")
    assert first.marker is not None
