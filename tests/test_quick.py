"""What `make quick` chooses."""

from tests import quick


def test_the_core_exists() -> None:
    """A module that moved is named here first."""
    assert [path for path in quick.CORE if not (quick.ROOT / path).exists()] == []


def test_a_module_leads_to_its_own_tests() -> None:
    """By its name, or else to the tests of the nearest directory."""
    assert quick.tests_near("agent/tasks/rules/claiming.py") == [
        "tests/tasks/rules/test_claiming.py"
    ]
    assert "tests/tasks/rules/test_waits.py" in quick.tests_near("agent/tasks/rules/__init__.py")
    assert "tests/test_recovery.py" in quick.tests_near("agent/upgrade.py")


def test_a_test_leads_to_itself() -> None:
    """What tests share, documents and removed files lead nowhere."""
    assert quick.tests_near("tests/test_quick.py") == ["tests/test_quick.py"]
    for name in ("tests/conftest.py", "docs/api.md", "tests/test_removed.py", "Makefile"):
        assert quick.tests_near(name) == []


def test_too_many_modules_leave_the_changed_tests() -> None:
    """Those that changed themselves, unless even they are too many; the core runs in any case."""
    rules = sorted((quick.ROOT / "tests/tasks/rules").glob("test_*.py"))
    own = str(rules[0].relative_to(quick.ROOT))
    assert len(rules) > quick.MOST_MODULES
    assert quick.choose(["agent/tasks/rules/__init__.py", own]) == [own]
    assert quick.choose([str(each.relative_to(quick.ROOT)) for each in rules]) == []
