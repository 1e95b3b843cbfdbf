"""The check of our prose: it finds phrases in text and leaves code alone."""

import pytest

from tests.prose.words import INSTEAD, find


@pytest.mark.parametrize("phrase", INSTEAD)
def test_every_phrase_is_found(phrase: str) -> None:
    """Each phrase is found in a page, in any case, and the finding says what to write."""
    (finding,) = find("docs/page.md", f"One line.\nThen {phrase.upper()} again.\n")
    assert (finding.line, finding.phrase) == (2, phrase)
    assert INSTEAD[phrase] in str(finding)


def test_comments_and_strings_count_and_names_do_not() -> None:
    """A variable may carry such a word; a comment, a docstring and a message may not."""
    code = (
        'def anew(nobody):\n    """Begin anew."""\n    # nobody\n    return "of whoever" + nobody\n'
    )
    findings = [(finding.line, finding.phrase) for finding in find("agent/x.py", code)]
    assert findings == [(2, "anew"), (3, "nobody"), (4, "whoever")]


def test_a_string_of_one_word_is_a_value() -> None:
    """The system user `nobody` may be named in code."""
    assert list(find("agent/x.py", 'user = "nobody"\n')) == []


def test_a_phrase_across_lines_is_found() -> None:
    """A line break between two words of a phrase hides nothing."""
    (finding,) = find("docs/page.md", "a thing of\nwhich there are two\n")
    assert (finding.line, finding.phrase) == (1, "of which")
