"""The bytes that are kept from one version to the next are what they were; nothing rewrites `vectors.json`."""

import json
from pathlib import Path

import pytest

from tests.golden import persisted

RECORDED = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def computed() -> persisted.Vectors:
    """Return the vectors of this program, as JSON has them."""
    vectors: persisted.Vectors = json.loads(json.dumps(persisted.vectors()))
    return vectors


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_what_is_kept_is_what_it_was(computed: persisted.Vectors, name: str) -> None:
    """Keys, hashes and stored forms are equal, without exception."""
    assert computed[name] == RECORDED[name]


def test_each_vector_is_recorded(computed: persisted.Vectors) -> None:
    """A new kind of vector is recorded with the test that computes it."""
    assert computed.keys() == RECORDED.keys()
    assert len(RECORDED["calls"]) == len(persisted.EFFECTS)
