"""The definition of a trigger, written as in the workflow file."""

import pytest

from agent.cli.output import definition_lines
from agent.workflows.compile.compiler import compile_text

SCHEDULE = """\
cron: 0 9 * * 1-5
id: morning
timezone: Europe/Berlin
jitter: 1m30s
catch_up: all
window: 12h
stagger: 10s
overlap: queue
pause_after_failures: 3
inputs: {region: "{{ trigger.scheduled_for }}", count: 3, wait_seconds: 5, at: "12"}
"""
MAIL = """\
mail: {host: imap.example.org, user: me, password: "env:IMAP_PASSWORD"}
every: 5m
expect_every: 1d
"""


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("schedule", SCHEDULE),
        ("schedule", 'cron: "@daily"\nid: daily\n'),
        ("schedule", "every: 250ms\nid: often\n"),
        ("schedule", 'at: ["2026-03-01", "2027-03-01T09:00"]\nid: twice\n'),
        ("watch", MAIL),
        ("watch", "feed: https://example.org/feed\nid: news\n"),
        ("watch", "url: {url: https://example.org/, select: 'h1 > a'}\nid: page\n"),
        ("watch", "path: {path: ./in, match: '*.pdf', quiet: 3s}\nid: drop\n"),
    ],
)
def test_what_is_printed_can_be_written_into_the_file(kind: str, text: str) -> None:
    """It compiles to the same trigger: no key and no unit is one of the compiled form."""
    definition = _compiled(kind, text)
    lines = list(definition_lines.lines_of(definition))
    assert _compiled(kind, "\n".join(lines)) == definition


def test_durations_have_units_and_empty_keys_are_left_out() -> None:
    """Inputs are the person's own words, whatever their names end in."""
    lines = list(definition_lines.lines_of(_compiled("schedule", SCHEDULE)))
    assert "jitter: 1m30s" in lines and "stagger: 10s" in lines and "window: 12h" in lines
    assert "cron: 0 9 * * 1-5" in lines
    assert "  wait_seconds: 5" in lines
    assert not any(line.startswith("overlap_ignores_waiting") for line in lines)


def _compiled(kind: str, keys: str) -> dict[str, object]:
    inputs = "inputs: {region: {type: text, default: x}, count: {type: integer, default: 1},"
    inputs += " wait_seconds: {type: integer, default: 1}, at: {type: text, default: x}}\n"
    block = "\n".join(f"      {line}" for line in keys.splitlines())
    text = f"name: w\n{inputs}on:\n  {kind}:\n    -\n{block}\nsteps: {{rest: {{wait: 1s}}}}\n"
    graph = compile_text(text)
    document: dict[str, object] = graph.on[kind][0]
    return document
