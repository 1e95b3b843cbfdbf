"""Messages of the engine in the words of a page.

The engine writes a message once for every surface, so it may name a command or an option. Where a page
has a button or a link for the same, `for_pages` says so instead; what only a terminal can do stays.
"""

import re
from typing import Final

_FORK: Final = r"`(?:agent )?fork (?:[0-9a-f]+ )?--from (?P<step>[^`]+?)"
_WORDS: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            "once that task has ended, retry it with --latest",
            "that task can be retried on it once it has ended",
        ),
        (": --latest goes on with that", ""),
        ("without --latest the task goes on with its own", "the task can go on with its own"),
        ("Without --latest it goes on with its own version", "It can go on with its own version"),
        (f"{_FORK} --latest` runs it", r"A fork from \g<step> on the newest version runs it"),
        (f"{_FORK}` runs", r"A fork from \g<step> runs"),
        (
            "the task stays paused: `agent resume [^`]*`",
            "the task stays paused until it is resumed",
        ),
        (r" \(`agent resume`\)", ""),
        (": `agent (?:schedules|watchers) resume [^`]*`", ""),
        ("; `agent budget [^`]*` raises it", ""),
        (
            ": `agent up` registers every file of the workflow directory, and `agent run` the file"
            " that it runs",
            ": the agent registers every file of its workflow directory",
        ),
    )
)
"""What the engine says, and what a page says instead."""


def for_pages(text: str) -> str:
    """Return a message without the commands for which pages have a button or a link."""
    if "--" in text or "`agent " in text:
        for pattern, words in _WORDS:
            text = pattern.sub(words, text)
    return text
