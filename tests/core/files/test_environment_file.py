"""The `.env` file: its syntax, who may read it, and when it is read again."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.core.files.environment_file import (
    EnvironmentFile,
    EnvironmentFileError,
    parse_environment,
)
from agent.core.files.file_trust import Trust

SAMPLE = """\
\ufeff# A comment
PLAIN=value
export EXPORTED = spaced value   # a comment
\tINDENTED=x#y
EMPTY=
COMMENTED=# only a comment
SINGLE='as $it is \\n # here'  # a comment
DOUBLE="a \\"b\\" \\\\ \\n$X \\q"
KEY="-----BEGIN-----
line two
-----END-----"
INSIDE=a"b'c
lower_1=z
PLAIN=last wins
"""


def test_the_usual_syntax() -> None:
    """Comments, `export`, both quotes, several lines; nothing is substituted."""
    assert parse_environment(SAMPLE) == {
        "PLAIN": "last wins",
        "EXPORTED": "spaced value",
        "INDENTED": "x#y",
        "EMPTY": "",
        "COMMENTED": "",
        "SINGLE": "as $it is \\n # here",
        "DOUBLE": 'a "b" \\ \n$X \\q',
        "KEY": "-----BEGIN-----\nline two\n-----END-----",
        "INSIDE": "a\"b'c",
        "lower_1": "z",
    }
    assert parse_environment("A=1\r\nB='2'\r\n") == {"A": "1", "B": "2"}


def test_every_wrong_line_is_named_and_no_value_shown() -> None:
    """The message has the numbers of the lines; what they say may be a secret."""
    text = "A=ok\nhunter2-password\n1B=hunter2-value\nC='hunter2' rest\nD=\"hunter2-open\nE=1\n"
    with pytest.raises(EnvironmentFileError) as caught:
        parse_environment(text)
    message = str(caught.value)
    assert [f"line {number}:" in message for number in (1, 2, 3, 4, 5, 6)] == [
        *(False, True, True, True, True, False)
    ]
    assert "hunter2" not in message


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    )
)
def test_quoted_values_come_back_as_they_were(values: dict[str, str]) -> None:
    """Every text can be written in double quotes, whatever stands in the other lines."""
    lines = [
        f'export {name}="{value.translate({34: chr(92) + chr(34), 92: chr(92) * 2})}" # note'
        for name, value in values.items()
    ]
    assert parse_environment("\n".join(lines)) == values


@given(st.text(st.sampled_from("AB_1='\"\\# \t\r\n\0$é export"), max_size=60))
@example('A="\\')
@example("export =")
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing else is raised, and a refusal quotes nothing but line numbers."""
    lines = text.count("\n") + 1
    try:
        values = parse_environment(text)
    except EnvironmentFileError as problem:
        assert all(
            1 <= int(part.split(":")[0]) <= lines for part in str(problem).split("line ")[1:]
        )
    else:
        assert all(name and "\0" not in value for name, value in values.items())


def opened(path: Path) -> EnvironmentFile:
    """Return a file that only the user of this test may change."""
    return EnvironmentFile(path, Trust)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """Also one that appears later, is broken meanwhile, and is removed."""
    path = tmp_path / ".env"
    file = opened(path)
    assert file.get("A") is None
    path.touch(mode=0o600)
    path.write_text("A=one\n")
    assert file.get("A") == "one"
    path.write_text("A=three\nbroken\n")
    with pytest.raises(EnvironmentFileError, match=r"\.env: line 2: expected"):
        file.get("A")
    path.write_text("A=four-\n")
    assert file.get("A") == "four-"
    path.unlink()
    assert file.get("A") is None


@pytest.mark.parametrize(
    ("mode", "problem"),
    [(0o644, "other users can read it: chmod 600"), (0o602, "can be written by every user")],
)
def test_a_file_of_others_is_not_used(tmp_path: Path, mode: int, problem: str) -> None:
    """Neither one that they can read nor one that they can write; closing it is enough."""
    path = tmp_path / ".env"
    path.write_text("A=hunter2\n")
    path.chmod(mode)
    file = opened(path)
    with pytest.raises(EnvironmentFileError, match=problem) as caught:
        file.get("A")
    assert "hunter2" not in str(caught.value)
    path.chmod(0o600)
    assert file.get("A") == "hunter2"


def test_only_a_regular_file_of_bounded_size_in_utf_8(tmp_path: Path) -> None:
    """A pipe would block; bytes that are no text are named by their line."""
    path = tmp_path / ".env"
    os.mkfifo(path, 0o600)
    with pytest.raises(EnvironmentFileError, match="not a regular file"):
        opened(path).values()
    path.unlink()
    path.touch(mode=0o600)
    path.write_bytes(b"A=1\nB=\xff\n")
    with pytest.raises(EnvironmentFileError, match="line 2: this is not UTF-8"):
        opened(path).values()
    path.write_bytes(b"#" * 1_048_577)
    with pytest.raises(EnvironmentFileError, match="larger than"):
        opened(path).values()
