"""Messages of the engine on pages: links, local times, and no words of a terminal."""

from zoneinfo import ZoneInfo

import pytest

from agent.server.pages.framework.engine_texts import shown
from agent.server.pages.framework.page_words import for_pages

TASK = "01a2b3c4-0000-7000-8000-0000933d1f81"
OTHER = "01a2b3c4-0000-7000-8000-0000933d1f82"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Retried as X on its own version, 1; version 2 of w is newer: --latest goes on with that",
         "Retried as X on its own version, 1; version 2 of w is newer"),
        ("version 2 of w is newer: once that task has ended, retry it with --latest",
         "version 2 of w is newer: that task can be retried on it once it has ended"),
        ("Without --latest it goes on with its own version. `fork --from a --latest` runs it again, with its effects.",
         "It can go on with its own version. A fork from a on the newest version runs it again, with its effects."),
        ("nothing is sent again. `agent fork 933d1f81 --from pay` runs the step from its beginning",
         "nothing is sent again. A fork from pay runs the step from its beginning"),
        ("the time of step 'a' is over; `agent budget 933d1f81 --step a --time D` raises it",
         "the time of step 'a' is over"),
        ("budget set; the task stays paused: `agent resume 933d1f81`",
         "budget set; the task stays paused until it is resumed"),
        ("it may go on tomorrow (`agent resume`); [budget] sets it",
         "it may go on tomorrow; [budget] sets it"),
        ("w:daily is paused (holidays): `agent schedules resume w:daily`",
         "w:daily is paused (holidays)"),
        ("no account is paired: write to the bot, then `agent pair CODE`",
         "no account is paired: write to the bot, then `agent pair CODE`"),
    ],
)  # fmt: skip
def test_commands_that_have_buttons_are_not_named(said: str, words: str) -> None:
    """What only a terminal can do stays."""
    assert for_pages(said) == words


def test_tasks_and_questions_are_links() -> None:
    """An id in full means nothing to a person; a person's own text gets no links."""
    text = str(shown(f"2 retried as {TASK}, {OTHER}. Its child task {TASK} runs", None))
    assert text.count(f'<a href="/tasks/{TASK}"><code>933d1f81</code></a>') == 2
    assert f'<a href="/tasks/{OTHER}">' in text
    again = str(shown(f"too late; it is asked again as {TASK}", None))
    assert again.endswith(f'asked again as <a href="/questions/{TASK}"><code>933d1f81</code></a>')
    assert "<a" not in str(shown(f"Approved: {TASK}", None))


def test_instants_are_local_times_with_the_exact_one_on_hover() -> None:
    """Both forms of the engine: of documents and of sentences. What only looks like one stays."""
    zone = ZoneInfo("Asia/Kolkata")
    text = str(
        shown("`<b>` started at 2026-01-02 03:04 UTC; asked at 2026-01-02T03:04:05.678Z", zone)
    )
    assert text.startswith("<code>&lt;b&gt;</code> started at <time")
    assert 'title="2026-01-02 03:04 UTC" data-date>2026-01-02 08:34 +05:30</time>;' in text
    assert 'title="2026-01-02 03:04:05.678 UTC" data-date>2026-01-02 08:34 +05:30</time>' in text
    assert "<time" not in str(shown("at 2026-13-40 03:04 UTC", zone))
