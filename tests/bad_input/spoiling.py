"""Bad input made from good: cut, repeated, swapped, and strewn with what trips readers up."""

from typing import Final

from hypothesis import strategies as st

_ODD: Final = [
    *("\0", "\r", "\t", "\ufeff", "\u202e", "\u2028", "é", "😀", "٣", "\\", "'", '"', "`"),
    *("{{", "}}", "{%", "%}", "{#", "[", "]", "{", "}", "(", ")", ":", "-", ",", "|", ">", "#"),
    *(
        "&a ",
        "*a",
        "<<: *a",
        "!!python/object/apply:os.system [id]",
        "!!binary x",
        "---\n",
        "...\n",
    ),
    *("null", "true", "~", ".inf", ".nan", "NaN", "-0", "1e999", "0x1F", "9" * 40, "-1", "1_000"),
    *(
        "\\ud800",
        "\\u0000",
        "__class__",
        "self",
        "range(10**9)",
        "*/0",
        "60",
        "L",
        "W",
        "?",
        "1-",
        "#",
    ),
    "[" * 200,
    "a" * 3000,
]
ODD: Final = [odd.encode() for odd in _ODD] + [b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\x80"]


@st.composite
def spoiled(draw: st.DrawFn, good: list[bytes]) -> bytes:
    """Return one of the good inputs after a few mishaps."""
    text = draw(st.sampled_from(good))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 60)))
        match draw(st.sampled_from(("cut", "put", "put", "instead", "twice", "noise"))):
            case "cut":
                text = text[:start] + text[end:]
            case "put":
                text = text[:start] + draw(st.sampled_from(ODD)) + text[start:]
            case "instead":
                text = text[:start] + draw(st.sampled_from(ODD)) + text[end:]
            case "twice":
                text = text[:end] + text[start:]
            case _:
                text = text[:start] + draw(st.binary(max_size=8)) + text[start:]
    return text
