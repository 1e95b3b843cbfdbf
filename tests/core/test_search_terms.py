"""The tokenizer: which texts a query finds, whatever their script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.search_terms import MAX_QUERY_TERMS, index_text, match_words
from tests.support.hypothesis_profile import PATIENT


def finds(query: str, text: str) -> bool:
    """Whether every term of a query matches a text."""
    words = index_text(text).split()
    terms = match_words(query)
    return bool(terms) and all(any(term.matches(word) for word in words) for term in terms)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("C++", "we write C++ here"),
        ("c", "we write C++ here"),
        ("C#", "C# and F#"),
        ("天気", "明日の天気予報"),
        ("気", "明日の天気"),
        ("天", "晴天"),
        ("天気予報", "天気予報を見る"),
        ("서울", "나는 서울에서 산다"),
        ("ไทย", "ภาษาไทย"),
        ("naïve", "a NAÏVE idea"),
        ("nai\u0308ve", "naïve"),
        ("don't", "I don’t know"),
        ("anna@example.com", "mail anna@example.com today"),
        ("example.com", "mail anna@example.com today"),
        ("inv-2024", "invoice INV-2024-0017"),
        ("0017", "invoice INV-2024-0017"),
        ("invoice_id", "SELECT invoice_id"),
        ("id", "SELECT invoice_id"),
        ("STRASSE", "Straße"),
        ("ＡＢＣ", "abc"),
        ("ｶﾅ", "カナ"),
        ("dent", "dentist"),
        ("Привет", "ПРИВЕТ, мир"),
        ("iphone", "iPhone15を買う"),
        ("हिन्दी", "मैं हिन्दी बोलता हूँ"),
    ],
)
def test_a_text_is_found(query: str, text: str) -> None:
    """By words, their beginnings, and pairs of characters where a script does not separate words."""
    assert finds(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("t", "tea"),  # one letter matches only itself
        ("ist", "dentist"),
        ("気天", "天気"),
        ("C#", "C++"),
        ("!!!", "nothing but signs !!!"),
        ("", "anything"),
    ],
)
def test_a_text_is_not_found(query: str, text: str) -> None:
    """A single letter is no beginning; the end of a word is none; signs are no words."""
    assert not finds(query, text)


@given(st.text(max_size=80), st.text(max_size=80))
@PATIENT
def test_words_are_letters_that_no_query_language_reads(before: str, after: str) -> None:
    """Whatever is given, the index and the queries consist of the letters a to p."""
    text = f"{before}\"' OR NEAR( -x:* & | ! <-> {after}"
    words = [*index_text(text).split(), *(term.word for term in match_words(text))]
    assert set("".join(words)) <= set("abcdefghijklmnop")
    assert len(match_words(text)) <= MAX_QUERY_TERMS


@given(st.text(alphabet="あいう天気予報漢字", min_size=1, max_size=20), st.data())
@PATIENT
def test_every_part_of_an_unseparated_text_is_found(text: str, data: st.DataObject) -> None:
    """Any run of its characters, one alone included, finds the text."""
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    assert finds(text[start:end], f"x {text} y")


@given(st.text(min_size=1, max_size=60))
@PATIENT
def test_a_text_finds_itself(text: str) -> None:
    """A query of a text's own words matches it, in any case, whatever the script."""
    if match_words(text):
        assert finds(text, text)
        assert finds(text.casefold(), text)
