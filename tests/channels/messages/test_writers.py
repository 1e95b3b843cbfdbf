"""How Markdown is written for each channel: balanced, whole, and without a way to deceive."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.channels.messages import plain_text, slack_blocks, split, telegram_html
from agent.channels.messages.document import parse
from agent.channels.messages.link_targets import is_linkable, must_show
from agent.channels.messages.plain_text import WORD_JOINER, to_plain, utf16_length
from tests.support.bot_html import read_html

_PIECES = st.sampled_from(
    [
        "**", "_", "`", "```", "~~", "\n", "\n\n", "> ", "- ", "1. ", "# ", "[", "](", ")", "![",
        "<b>", "</b>", "<", ">", "&", "&lt;", "<!here>", "<!channel>", "<@U1>", "<#C1>", "@channel",
        "@here", "@", "/", "@@", "@everyone", "@ada_lovelace", "/approve", "/cancel now", "https://evil.example",
        "bank.example", "tg://user?id=1", "javascript:alert(1)", "mailto:a@b.example", "|a|b|\n|-|-|\n",
        "\u202e", "\u200b", "\U0001f600", "word ", "a", " ", "\\", "\"", "'", "***\n",
    ]
)  # fmt: skip
TEXTS = st.lists(_PIECES | st.text(max_size=8), max_size=40).map("".join)
_MENTION = re.compile(r"(?<!\w)@\w")
_COMMAND = re.compile(r"(?<![\w/<>])/[A-Za-z0-9_]{1,64}(?![\w/<>])")


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]{3,}", text)


@given(TEXTS)
@example("[bank.example](https://evil.example) **a `b** c`")
@example("@**channel** and /**approve**")
def test_telegram_html_is_balanced_and_mentions_no_one(text: str) -> None:
    """Telegram accepts it; outside of code there is neither a mention nor a command."""
    html = telegram_html.to_html(parse(text))
    seen = read_html(html)
    for target, shown in seen.links:
        assert is_linkable(target)
        assert not must_show(shown.replace(WORD_JOINER, ""), target)
    outside = re.sub(r"<(code|pre)\b.*?</\1>", "", html, flags=re.DOTALL)
    outside = re.sub(r'<a href="[^"]*">(https?://|mailto:)[^<]*</a>', "", outside)
    plain = read_html(outside).text
    assert _MENTION.search(plain) is None
    assert _COMMAND.search(plain) is None
    assert "\u202e" not in seen.text
    assert "\u200b" not in seen.text


@given(TEXTS)
def test_slack_gets_text_and_links_and_nothing_else(text: str) -> None:
    """No element can mention; links lead where they say, and no text is empty."""
    for block in slack_blocks.to_blocks(parse(text)):
        assert block["type"] == "rich_text"
        for element in block["elements"]:
            assert element["elements"]
            for inner in element["elements"]:
                assert inner["type"] in ("text", "link")
                assert inner["text"]
                if inner["type"] == "link":
                    assert is_linkable(inner["url"])
                    assert not must_show(inner["text"], inner["url"])
    assert "\u202e" not in json.dumps(slack_blocks.to_blocks(parse(text)), ensure_ascii=False)


@given(TEXTS)
def test_defused_text_mentions_no_one(text: str) -> None:
    """What goes to services of Apprise has neither mentions nor their markup."""
    written = plain_text.defused(to_plain(parse(text)))
    assert _MENTION.search(written) is None
    assert re.search(r"<[!@#]", written) is None


@given(st.lists(st.from_regex(r"[a-z]{3,9}", fullmatch=True), min_size=1, max_size=200))
def test_words_survive_in_every_channel(words: list[str]) -> None:
    """Each word of a text is seen, in its order."""
    text = " ".join(words)
    blocks = parse(text)
    assert _words(read_html(telegram_html.to_html(blocks)).text) == words
    assert _words(to_plain(blocks)) == words
    shown = "".join(
        inner["text"]
        for block in slack_blocks.to_blocks(blocks)
        for element in block["elements"]
        for inner in element["elements"]
    )
    assert _words(shown) == words


@given(TEXTS)
def test_a_plain_text_is_shown_as_it_is(text: str) -> None:
    """Without Markdown nothing is formatted: the visible text is the text."""
    html = telegram_html.to_html(parse(text, is_markdown=False))
    seen = read_html(html).text.replace(WORD_JOINER, "")
    assert not re.search(r"<(b|i|s|a|pre|code)\b", html)
    assert _words(seen) == _words(to_plain(parse(text, is_markdown=False)))


@given(st.lists(TEXTS, min_size=1, max_size=30).map("\n\n".join), st.integers(200, 600))
def test_parts_fit_and_lose_no_word(text: str, limit: int) -> None:
    """Each part is within the limit; together they have every word of the text."""

    def measure(piece: str) -> int:
        return telegram_html.measure(piece, is_markdown=True)

    parts, whole = split.split(text, limit, measure)
    if whole is not None:
        assert whole == text
        assert len(parts) == 1
        return
    assert len(parts) <= split.MAX_PARTS
    for part in parts:
        # A cut in the middle of marks shows a few of them; Telegram's own limit has room for that.
        seen = read_html(telegram_html.to_html(parse(part))).text
        assert utf16_length(seen) <= limit * 2
    assert _words("".join(parts).replace("\n", "")) == _words(text.replace("\n", "")) or _letters(
        "".join(parts)
    ) == _letters(text)


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text)


def test_a_long_piece_of_code_is_closed_and_opened_again() -> None:
    """Every part of it is code by itself."""
    code = "\n".join(f"line {number}" for number in range(900))
    parts, whole = split.split(
        f"Before:\n\n```py\n{code}\n```\n\nAfter.",
        4000,
        lambda piece: telegram_html.measure(piece, is_markdown=True),
    )
    assert whole is None
    assert len(parts) == 3
    lines = re.findall(
        r"line \d+", "".join(read_html(telegram_html.to_html(parse(p))).code for p in parts)
    )
    assert lines == [f"line {number}" for number in range(900)]
    for part in parts:
        assert utf16_length(read_html(telegram_html.to_html(parse(part))).text) <= 4096


def test_code_that_fits_stays_whole() -> None:
    """It moves to the next part instead of being cut."""
    code = "```\n" + "x = 1\n" * 300 + "```"
    parts, _ = split.split(
        f"{'word ' * 500}\n\n{code}",
        4000,
        lambda piece: telegram_html.measure(piece, is_markdown=True),
    )
    assert parts[1] == code


def test_a_very_long_text_is_cut_with_a_notice() -> None:
    """Its beginning says that the rest is attached; the whole text goes into a file."""
    text = "\n\n".join(f"paragraph {number} " + "word " * 100 for number in range(300))
    parts, whole = split.split(
        text, 4000, lambda piece: telegram_html.measure(piece, is_markdown=True)
    )
    assert whole == text
    assert len(parts) == 1
    assert parts[0].endswith("the whole text is attached")
    assert utf16_length(parts[0]) <= 4096


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("[https://bank.example](https://evil.example/x)", "https://bank.example (https://evil.example/x)"),
        ("[bank.example/login](https://evil.example)", "bank.example/login (https://evil.example)"),
        ("[the bank](https://bank.example@evil.example)", "the bank (https://bank.example@evil.example)"),
        ("[you](tg://user?id=1)", "you (tg://user?id=1)"),
        ("[news](https://example.com/a)", "news"),
        ("<https://example.com/a>", "https://example.com/a"),
        ("![a chart](https://example.com/c.png)", "a chart"),
    ],
)  # fmt: skip
def test_a_link_shows_its_target_where_its_text_could_deceive(markdown: str, shown: str) -> None:
    """A text that looks like an address is followed by the real one."""
    assert read_html(telegram_html.to_html(parse(markdown))).text == shown


def test_formatting_is_written() -> None:
    """The usual marks become the platform's own."""
    html = telegram_html.to_html(
        parse("# Head\n\n**b** _i_ ~~s~~ `c`\n\n- one\n  - two\n\n> said\n\n```py\nx < 1\n```")
    )
    assert html == (
        "<b>Head</b>\n\n<b>b</b> <i>i</i> <s>s</s> <code>c</code>\n\n• one\n  • two\n\n"
        '<blockquote>said</blockquote>\n\n<pre><code class="language-py">x &lt; 1</code></pre>'
    )
