"""Redaction: a secret is found in whatever form it is written, and costs little where it is not."""

import base64
import html
import json
import re
import shlex
import string
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import hypothesis
import pytest
from hypothesis import strategies

from agent.core.redaction import REDACTED, Redactor
from agent.core.secret_forms import MIN_LENGTH, spellings

SECRETS = (
    'p"ss/w rd',
    "pä$$wörd/日本+&<'x",
    "s3cr3t-Value_1.2",
    "!!@@##$$//",
    "sk-" + "Ab3" * 30,
    "a'b\\c\"d",
    "🔑🔑key🔑",
    "tok~en!*()",
    "-----BEGIN KEY-----\nabc/def+ghi\nxyzxyz==",
)


def hiding(*secrets: str) -> Redactor:
    """Return what hides these."""
    redactor = Redactor()
    for secret in secrets:
        redactor.hide(secret)
    return redactor


def lowered(text: str) -> str:
    """Return percent-encoding as some write it."""
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), text)


WRITTEN: dict[str, Callable[[str], str]] = {
    "plain": lambda secret: secret,
    "quote": quote,
    "quote all": lambda secret: quote(secret, safe=""),
    "quote_plus": quote_plus,
    "lower-case percent": lambda secret: lowered(quote(secret, safe="")),
    "quoted twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "html": html.escape,
    "html in decimal": lambda secret: html.escape(secret).replace("&#x27;", "&#39;"),
    "all html": lambda secret: "".join(
        char if char.isalnum() and char.isascii() else f"&#{ord(char)};" for char in secret
    ),
    "json": lambda secret: json.dumps(secret)[1:-1],
    "json in utf-8": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "json in capitals": lambda secret: re.sub(
        r"\\u[0-9a-f]{4}", lambda found: "\\u" + found[0][2:].upper(), json.dumps(secret)[1:-1]
    ),
    "json in json": lambda secret: json.dumps(json.dumps(secret)[1:-1])[1:-1],
    "json with slashes": lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),
    "repr": lambda secret: repr(secret)[1:-1],
    "shell": lambda secret: shlex.quote(f" {secret}")[2:-1],
    "hex": lambda secret: secret.encode().hex(),
    "hex with spaces": lambda secret: secret.encode().hex(" "),
    "hex with colons": lambda secret: secret.encode().hex(":").upper(),
    "hex in capitals": lambda secret: secret.encode().hex().upper(),
}


def each_as(form: str) -> Callable[[str], str]:
    """Return what escapes every character, letters included."""
    return lambda secret: "".join(form.format(ord(char)) for char in secret)


ESCAPED: dict[str, Callable[[str], str]] = {
    "percent": each_as("%{:02X}"),
    "lower-case percent": each_as("%{:02x}"),
    "percent twice": each_as("%25{:02X}"),
    "json": each_as("\\u{:04x}"),
    "json in capitals": each_as("\\u{:04X}"),
    "json in json": each_as("\\\\u{:04x}"),
    "bytes": each_as("\\x{:02x}"),
    "html": each_as("&#{};"),
    "html in hex": each_as("&#x{:x};"),
    "html in capitals": each_as("&#X{:X};"),
    "html twice": each_as("&amp;#{};"),
}


@pytest.mark.parametrize("secret", ["sk-Live_49fJkLm/No+pq", "p@ss word", "hunter2hunter2"])
@pytest.mark.parametrize("form", ESCAPED)
def test_a_secret_is_hidden_when_its_letters_are_escaped(secret: str, form: str) -> None:
    """Also as part of a value, which is first looked at as JSON."""
    redactor, written = hiding(secret), ESCAPED[form](secret)
    assert redactor.redact(f"<{written}>") == f"<{REDACTED}>"
    assert redactor.redact_value({"a": [f"<{written}>"]}) == {"a": [f"<{REDACTED}>"]}


@pytest.mark.parametrize("before", range(30))
def test_hex_in_lines_is_hidden(before: int) -> None:
    """As `xxd -p` and `od -An -tx1` write it, wherever a line ends."""
    data = b"x" * before + b"sk-Live_49fJkLmNo/pq+rs42zzTop" + b"x" * 30
    digits = data.hex()
    plain = "\n".join(digits[at : at + 60] for at in range(0, len(digits), 60))
    rows = (data[at : at + 16].hex(" ") for at in range(0, len(data), 16))
    spaced = "\n".join(f" {row}" for row in rows)
    for text in (plain, spaced):
        left = re.sub(r"\s", "", hiding("sk-Live_49fJkLmNo/pq+rs42zzTop").redact(text))
        assert left == "78" * before + REDACTED + "78" * 30


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("form", WRITTEN)
def test_every_form_is_hidden_whole(secret: str, form: str) -> None:
    """However a program escapes it, nothing of it is left."""
    assert hiding(secret).redact(f"<{WRITTEN[form](secret)}>") == f"<{REDACTED}>"


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("before", ["", "u:", "us:", "usr:", "user:", "someone-else:"])
@pytest.mark.parametrize("after", ["", "x", "xy", ":xyz"])
def test_base64_is_hidden_at_every_alignment(secret: str, before: str, after: str) -> None:
    """`Authorization: Basic` holds a name before the secret; the alphabet and the padding vary."""
    data = f"{before}{secret}{after}".encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(data).decode()
        for text in (encoded, encoded.rstrip("="), quote(encoded, safe="")):
            shown = hiding(secret).redact(f"Basic {text} end")
            left = shown.removeprefix("Basic ").removesuffix(" end")
            name, _, rest = left.partition(REDACTED)
            assert REDACTED in left
            assert len(name) <= len(before) * 4 // 3 + 1
            assert len(rest.replace("%3D", "=").rstrip("=")) <= len(after) * 4 // 3 + 1


def test_base64_in_lines_is_hidden() -> None:
    """What `base64` and mail break after 76 characters is one secret still."""
    secret = "".join(chr(33 + number % 90) for number in range(200))
    for before in (b"", b"name:", b"x" * 50):
        shown = hiding(secret).redact(base64.encodebytes(before + secret.encode()).decode())
        assert REDACTED in shown
        assert len(shown) < len(before) * 2 + 20


@hypothesis.given(
    strategies.text(
        strategies.characters(exclude_categories=["Cs"]), min_size=MIN_LENGTH, max_size=40
    ).filter(lambda text: len(text.strip()) >= MIN_LENGTH),
    strategies.sampled_from(sorted(set(WRITTEN) - {"hex", "hex in capitals"})),
)
def test_any_secret_is_hidden(secret: str, form: str) -> None:
    """Whatever characters it has."""
    secret = secret.strip()
    shown = hiding(secret).redact(f"<{WRITTEN[form](secret)}>")
    assert shown == f"<{REDACTED}>"


def test_values_are_hidden_in_texts_and_keys() -> None:
    """Other values stay as they are, and so does a value without any secret."""
    redactor = hiding("hunter2-value", "more")
    value = {"hunter2-value": [1, None, {"x": "a hunter2-value b"}], "n": True}
    assert redactor.redact_value(value) == {
        REDACTED: [1, None, {"x": f"a {REDACTED} b"}],
        "n": True,
    }
    clean = {"a": ["b", {"c": 1}]}
    assert redactor.redact_value(clean) is clean
    assert redactor.redact_value({1: {"more"}, "b": "more"}) == {1: {"more"}, "b": REDACTED}


def test_a_secret_of_digits_is_hidden_as_a_number() -> None:
    """A text that is read as JSON turns it into one; other numbers stay what they are."""
    redactor = hiding("482915", "31.5\n")
    value = {"pin": 482915, "other": 4829150, "rate": 31.5, "flag": True, "huge": 10**5000}
    hidden = {"pin": REDACTED, "other": 4829150, "rate": REDACTED, "flag": True, "huge": 10**5000}
    assert redactor.redact_value(value) == hidden


def test_short_values_are_let_through() -> None:
    """Hiding each "1" would make texts unreadable and give the secret away by its gaps."""
    redactor = hiding("1", "abc", "")
    assert redactor.redact("1 abc") == "1 abc"
    assert redactor.longest == 0


def test_replaced_values_stay_hidden_for_a_while() -> None:
    """Of one name the last few values are hidden, so that rotation does not add up."""
    redactor = Redactor()
    for number in range(100):
        redactor.hide(f"rotated-{number}", "env:TOKEN")
    assert len(redactor.values) == 4
    assert redactor.redact("rotated-99 rotated-98 rotated-3") == f"{REDACTED} {REDACTED} rotated-3"


def test_the_longest_form_is_no_longer_than_it_says() -> None:
    """Text is cut by that length, and must not be cut inside a secret."""
    for secret in SECRETS:
        redactor = hiding(secret)
        for form in WRITTEN.values():
            assert len(form(secret)) <= redactor.longest


def test_a_megabyte_costs_little() -> None:
    """Ten secrets, and a text that has none of them; the bound is far above what it takes."""
    redactor = hiding(*(f"{number}{string.ascii_letters}/+{number}" for number in range(10)))
    text = "the quick brown fox jumps over the lazy dog 0123456789\n" * 18_000
    began = time.thread_time()
    assert redactor.redact(text) == text
    assert time.thread_time() - began < 1.0


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("!abc1234xyz", "abc1234xyz" + "\\" * 500_000),
        ("abc\\\\\\1234", "1234 abc" + "\\" * 500_000),
        ("!@#$%^&*", "\\" * 500_000),
        ("abc\n\n'1234", "1234 abc" + "\\n" * 250_000),
    ],
)
def test_no_text_makes_the_search_slow(secret: str, text: str) -> None:
    """Not even one of backslashes, which may stand before every character of a secret."""
    redactor = hiding(secret)
    began = time.process_time()
    assert redactor.redact(text) == text
    assert time.process_time() - began < 2


def test_many_secrets_are_taken_quickly() -> None:
    """One more does not cost what all those before it did."""
    redactor = Redactor()
    began = time.process_time()
    for number in range(300):
        redactor.hide(f"{number:04}-Secret_of-{number * 7919:010}", f"env:NAME_{number}")
    assert time.process_time() - began < 4


def test_a_large_secret_costs_little() -> None:
    """A file of thousands of lines is hidden as a whole, and line by line as far as that is quick."""
    secret = json.dumps({f"key-{n}": f"value {n * 7919}" for n in range(5000)}, indent=1)
    began = time.process_time()
    redactor = hiding(secret)
    for written in (secret, json.dumps(secret), base64.b64encode(secret.encode()).decode()):
        assert len(redactor.redact(f"<{written}>")) < 40
    assert redactor.redact("some other text " * 10_000) == "some other text " * 10_000
    line = max((line.strip() for line in secret.splitlines()), key=len)
    assert redactor.redact(f"<{line}>") == f"<{REDACTED}>"
    assert time.process_time() - began < 5


def test_spellings_are_what_is_searched_for() -> None:
    """The checker looks for them by plain comparison; each is one that redaction hides."""
    for secret in SECRETS:
        redactor = hiding(secret)
        for spelling in spellings(secret):
            assert REDACTED in redactor.redact(f"<{spelling}>")


def test_many_secrets_do_not_make_the_search_slow() -> None:
    """A large text without any is searched once, not once for each secret; one that is there is found."""
    few, many = Redactor(), Redactor()
    secrets = [f"{number:04}-Secret_of-{number * 7919:010}" for number in range(200)]
    few.hide(secrets[0])
    for secret in secrets:
        many.hide(secret)
    text = "2026-11-17T18:47:31Z info step.succeeded task=0199a7f3 attempt=1 ok\n" * 15_000

    def seconds(redactor: Redactor) -> float:
        began = time.process_time()
        assert redactor.redact(text) == text
        return time.process_time() - began

    assert seconds(many) < 30 * seconds(few) + 1
    for secret in secrets[::40]:
        for spelling in spellings(secret):
            assert many.redact(f"{text[:200]}{spelling}") != f"{text[:200]}{spelling}", spelling


def test_keys_that_become_the_same_text_all_stay() -> None:
    """Two secrets as keys of one object do not make one member of two."""
    redactor = Redactor()
    redactor.hide("first-secret")
    redactor.hide("second-secret")
    document = {"first-secret": 1, f"{REDACTED} (2)": 2, "second-secret": 3, "plain": 4}
    assert redactor.redact_value(document) == {
        REDACTED: 1,
        f"{REDACTED} (2)": 2,
        f"{REDACTED} (3)": 3,
        "plain": 4,
    }
