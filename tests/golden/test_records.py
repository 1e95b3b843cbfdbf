"""What users and databases see is what was recorded; what is better by intention has a line that says so."""

import pytest

from tests.golden import records

NAMES = sorted(path.name for path in records.DIRECTORY.iterdir())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the records of this program."""
    return records.records(tmp_path_factory.mktemp("records"))


def test_each_record_is_made(made: dict[str, str]) -> None:
    """None is lost, and a new one is recorded."""
    assert sorted(made) == NAMES == sorted(records.improvements())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_seen_is_what_was_recorded(made: dict[str, str], name: str) -> None:
    """`python -m tests.golden.records` shows the difference, which is mended or gets its reason."""
    assert made[name].splitlines() == (
        (records.DIRECTORY / name).read_text(encoding="utf-8").splitlines()
    )
    assert records.digest(made[name]) == records.improvements()[name]
