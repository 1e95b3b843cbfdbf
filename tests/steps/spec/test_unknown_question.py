"""The question about an unknown effect names the effect as a person knows it."""

from typing import Any

import pytest

from agent.core.clock import SECOND
from agent.steps.spec.unknown_question import effect_summary, unknown_question

STARTED_AT = 1_893_500_880 * SECOND


@pytest.mark.parametrize(
    ("action", "request_", "summary"),
    [
        ("shell#1", {"argv": ["pay", "the bill"]}, "pay 'the bill'"),
        ("shell#1", {"script": "\n  curl -X POST x\nrm it\n"}, "curl -X POST x …"),
        ("shell#1", {"script": "echo `date`"}, "echo 'date'"),
        (
            "http.post#1",
            {"post": "https://example.com/pay", "json": {}},
            "POST https://example.com/pay",
        ),
        ("python#1", {"call": "my_steps:pay", "with": {}}, "my_steps:pay"),
        (
            "tool.notes_write#4",
            {"tool": "notes_write", "arguments": {"a": 1}},
            'notes_write {"a": 1}',
        ),
        ("mail.send#2", {"to": "ada"}, "mail.send#2"),
        ("shell#1", {"$artifact": "abc"}, "shell#1"),
        ("shell#1", {"argv": ["x" * 200]}, "x" * 99 + "…"),
        ("shell#1", {"script": ""}, "shell#1"),
        ("an effect", None, "an effect"),
    ],
)
def test_an_effect_in_a_few_words(action: str, request_: Any, summary: str) -> None:
    """A command line, an address, a function; the action where the request tells nothing."""
    assert effect_summary(action, request_) == summary


def test_the_question() -> None:
    """It says what started and when, that the result is missing, and what retry would send."""
    assert unknown_question("pay", "sh -c it", STARTED_AT, has_changed=False) == (
        "`sh -c it` of step pay started at 2030-01-01 12:28 UTC; its result was never recorded."
        " Did it happen?"
    )
    changed = unknown_question("pay", "an effect", None, has_changed=True)
    assert changed == (
        "`an effect` of step pay started; its result was never recorded. Did it happen?"
        " The step would now send another request: retry sends that one."
    )
