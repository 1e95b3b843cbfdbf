import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.clock import SECOND
from agent.steps.http.address_policy import AddressPolicy
from agent.steps.http.response import delay_seconds, document, verdict
from agent.steps.spec.configs import status_ranges
from agent.store.db.json_values import encode


@given(status=st.integers(100, 599), is_repeatable=st.booleans())
def test_only_an_effect_is_ever_unknown_and_only_a_5xx(status: int, is_repeatable: bool) -> None:
    """Every status has one meaning, and success is only what was expected."""
    told = verdict(status, status_ranges(None), is_repeatable=is_repeatable)
    assert (told == "succeeded") == (200 <= status <= 299)
    assert (told == "unknown") == (status >= 500 and not is_repeatable)


@given(text=st.text(max_size=40), now_us=st.integers(0, 4_000_000_000 * SECOND))
def test_retry_after_never_breaks_and_is_bounded(text: str, now_us: int) -> None:
    """Whatever a remote writes there, the delay is None or within a day."""
    delay = delay_seconds(text, now_us)
    assert delay is None or 0 <= delay <= 86_400


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("0", 0),
        (" 120 ", 120),
        ("999999999", 86_400),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90),
        ("Thu, 01 Jan 1970 00:00:05 GMT", 0),
    ],
)
def test_retry_after_in_both_forms(text: str, delay: float) -> None:
    """Seconds, and a date against the injected clock."""
    assert delay_seconds(text, 10 * SECOND) == delay


@given(
    body=st.binary(max_size=60),
    media=st.sampled_from(
        ["", "text/plain", "application/json", "text/html; charset=utf-16", "image/png", "x"]
    ),
)
def test_every_answer_can_be_stored(body: bytes, media: str) -> None:
    """Any bytes under any content type become plain JSON."""
    headers = {"Content-Type": media} if media else {}
    lower = {name.lower(): value for name, value in headers.items()}
    encode(document(200, lower, body), "output")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fd00::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
    ],
)
def test_special_addresses_are_not_public(address: str) -> None:
    """Private, loopback, link-local, shared, multicast, and IPv4 inside of IPv6."""
    assert not AddressPolicy([]).allows("a.example", ipaddress.ip_address(address))


def test_public_addresses_and_exceptions() -> None:
    """Public ones are allowed to all, others by address, network or name."""
    private = ipaddress.ip_address("10.1.2.3")
    assert AddressPolicy([]).allows("a.example", ipaddress.ip_address("93.184.216.34"))
    assert AddressPolicy([]).allows("a.example", ipaddress.ip_address("2606:2800:220:1::"))
    assert AddressPolicy(["10.0.0.0/8"]).allows("a.example", private)
    assert AddressPolicy(["10.1.2.3"]).allows("a.example", private)
    assert AddressPolicy(["NAS.local"]).allows("nas.local.", private)
    assert not AddressPolicy(["nas.local", "10.1.2.4"]).allows("a.example", private)
