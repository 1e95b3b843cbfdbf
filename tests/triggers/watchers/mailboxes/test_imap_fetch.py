from typing import Any

import pytest

from agent.triggers.watchers.mailboxes.imap_fetch import Fetched, read_responses


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            [(b"1 (UID 7 RFC822.SIZE 90 BODY[]<0> {5}", b"hello"), b")"],
            [Fetched(7, 90, b"hello")],
            id="the usual order",
        ),
        pytest.param(
            [(b"1 (BODY[] {5}", b"hello"), b" UID 7 RFC822.SIZE 90)"],
            [Fetched(7, 90, b"hello")],
            id="the number after the message",
        ),
        pytest.param(
            [
                (b"1 (UID 7 RFC822.SIZE 5 BODY[] {5}", b"hello"),
                b")",
                b"4 (UID 9 FLAGS (\\Seen))",
                (b"2 (UID 8 RFC822.SIZE 3 BODY[] {3}", b"you"),
                b")",
            ],
            [Fetched(7, 5, b"hello"), Fetched(8, 3, b"you")],
            id="a change of flags in between",
        ),
        pytest.param(
            [b'1 (BODY[] "UID 666 \\"RFC822.SIZE 1" UID 7 RFC822.SIZE 20)'],
            [Fetched(7, 20, b'UID 666 "RFC822.SIZE 1')],
            id="a short message that imitates the protocol",
        ),
        pytest.param(
            [b"1 (UID 7 RFC822.SIZE 90 BODY[] NIL)"],
            [Fetched(7, 90, b"")],
            id="a message that the server cannot read",
        ),
        pytest.param([None], [], id="no message"),
    ],
)
def test_responses(lines: list[Any], expected: list[Fetched]) -> None:
    """Servers answer in their own order, and add what was not asked for."""
    assert read_responses(lines) == expected
