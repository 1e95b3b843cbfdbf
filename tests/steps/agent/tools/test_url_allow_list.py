r"""The `http` tool's allow-list: however a server reads an allowed address, it is below the prefix."""

import re
import unicodedata
from collections.abc import Callable
from itertools import product
from urllib.parse import unquote_to_bytes

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.steps.agent.tools.url_allow_list import may_visit

PREFIX = "https://a.example/v1"

PIECES = [
    "/", "\\", ".", "..", ";", "%2f", "%2F", "%5c", "%2e", "%2E%2e", "%3b", "%252e", "%25", "%00",
    "%c0%af", "%c0%ae", "%e0%80%af", "%ef%bc%8f", "／", "．．", "…", "%E2%80%A6", " ", "%20", "%09",
    "\t", "\n", "?", "#", "@", ":", "admin", "v1", "a", "x%61", "..;", "..%3b", "%u002f", "%",
    "%2", "ä", "%C3%A4", "~", "+", "&", "=", "*", "|", "<", "\0", "\x7f", "\u202e", "\u2024",
]  # fmt: skip


def _decoded(path: str) -> str:
    # As sloppy servers do: overlong forms count.
    data = unquote_to_bytes(path)
    data = data.replace(b"\xc0\xaf", b"/").replace(b"\xc0\xae", b".")
    return data.replace(b"\xe0\x80\xaf", b"/").decode("utf-8", "replace")


READINGS: list[Callable[[str], str]] = [
    lambda path: path,
    _decoded,
    lambda path: path.replace("\\", "/"),
    lambda path: re.sub(r";[^/]*", "", path),
    lambda path: unicodedata.normalize("NFKC", path),
    lambda path: re.sub(r"[ .]+(?=/|$)", lambda dots: dots[0].rstrip(" "), path),
    lambda path: path.split("\0")[0],
    lambda path: re.sub("/+", "/", path),
]
"""What servers, proxies and frameworks are known to do to a path, alone and after one another."""


def places(path: str) -> set[str]:
    """Return every place that a chain of three such readings could find in a path."""
    found = set()
    for chain in product(READINGS, repeat=3):
        read = path
        for reading in chain:
            read = reading(read)
        segments: list[str] = []
        for segment in read.split("/"):
            if segment == "..":
                segments = segments[:-1]
            elif segment not in ("", "."):
                segments.append(segment)
        found.add("/" + "/".join(segments))
    return found


@given(st.lists(st.sampled_from(PIECES), max_size=7).map("".join))
def test_no_reading_of_an_allowed_path_leads_out(rest: str) -> None:
    """Whatever a server does to a path that passed, it stays at or below the prefix."""
    url = PREFIX + rest
    if not may_visit(url, [PREFIX]):
        return
    sent = httpx.URL(url)
    assert (sent.scheme, sent.host, sent.port) == ("https", "a.example", None)
    path = sent.raw_path.decode("ascii").partition("?")[0]
    for place in places(path):
        assert place == "/v1" or place.startswith("/v1/"), (url, place)


@given(st.text(max_size=20), st.sampled_from(["https://a.example", "https://a.example/", "https:"]))
def test_an_allowed_address_goes_to_the_allowed_host(rest: str, start: str) -> None:
    """What passes is sent where the list says, as the HTTP client understands it."""
    url = start + rest
    if may_visit(url, ["https://a.example/"]):
        sent = httpx.URL(url)
        assert (sent.scheme, sent.host, sent.port) == ("https", "a.example", None)
        assert sent.userinfo == b""


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/v1/..;/admin",
        "https://a.example/v1/..%3b/admin",
        "https://a.example/v1/..%3B/admin",
        "https://a.example/v1%2fx",
        "https://a.example/v1/x%2f..%2f..%2fadmin",
        "https://a.example/v1/x;jsessionid=1",
        "https://a.example/v1/%2e%2e/admin",
        "https://a.example/v1/.%2e/admin",
        "https://a.example/v1/%252e%252e/admin",
        "https://a.example/v1/./x",
        "https://a.example/v1//x",
        "https://a.example//v1/x",
        "https://a.example/v1/..\\admin",
        "https://a.example/v1/x%5c..%5cadmin",
        "https://a.example/v1/%c0%ae%c0%ae/admin",
        "https://a.example/v1/x%00",
        "https://a.example/v1/x\r\nHost: evil",
        "https://a.example/v1/x y",
        "https://a.example/v1/...",
        "https://a.example/v1/..%20/x",
        "https://a.example/v1/．．/x",
        "https://a.example./v1/x",
        "https://a.example:444/v1/x",
        "https://a.example:/v1/x",
        "https://user@a.example/v1/x",
        "https://user:pw@a.example/v1/x",
        "https://evil.example#@a.example/v1/x",
        "https://a.example@evil.example/v1/x",
        "https://a.example\\@evil.example/v1/x",
        "https://evil.example\\.a.example/v1/x",
        "https://a.example%2eevil.example/v1/x",
        "https:a.example/v1/x",
        "https:///a.example/v1/x",
        "//a.example/v1/x",
        "/v1/x",
        "http://a.example/v1/x",
        "ftp://a.example/v1/x",
        "https://ａ.example/v1/x",
        "https://[a.example]/v1",
        "https://a.example/V1/x",
        "https://a.example/v1x",
        "",
    ],
)
def test_ambiguous_paths_are_refused(url: str) -> None:
    """Servers differ on these: none is normalised, all are refused."""
    assert not may_visit(url, [PREFIX, f"{PREFIX}/"])


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/v1",
        "https://a.example/v1/",
        "https://a.example/v1/x",
        "HTTPS://A.Example:443/v1/x.y..z/-_~!$&'()*+,=:@",
        "https://a.example/v1/x?q=../%2e%2e;//#..",
        "https://a.example/v1#frag",
        "https://a.example/v1/caf%C3%A9",
        "https://a.example/v1/café",
        "https://a.example/v1/C%23",
        "https://a.example/v1/.hidden",
    ],
)
def test_paths_below_an_allowed_one_are_allowed(url: str) -> None:
    """Ordinary paths, queries, fragments and encoded letters pass."""
    assert may_visit(url, [PREFIX])


def test_hosts_of_other_scripts_and_numbers() -> None:
    """A host is compared as it goes over the wire, a path as it is sent."""
    assert may_visit("https://xn--bcher-kva.example/", ["https://bücher.example"])
    assert may_visit("https://bücher.example/x", ["https://xn--bcher-kva.example/"])
    assert may_visit("http://[::1]:8080/x", ["http://[::1]:8080"])
    assert may_visit("http://127.0.0.1:1/x", ["http://127.0.0.1:1/"])
    assert not may_visit("http://127.1:1/x", ["http://127.0.0.1:1/"])
    assert may_visit("https://a.example/%c3%a4/x", ["https://a.example/ä"])
    assert not may_visit("https://a.example/x", ["https://user@a.example/", "nonsense", ""])
