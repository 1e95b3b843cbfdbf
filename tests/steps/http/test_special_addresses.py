"""The address policy against IANA's registries of special-purpose addresses, range by range."""

import ipaddress
import random

import pytest

from agent.steps.http.address_policy import AddressPolicy

IPV4 = [
    "0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32",
    "192.0.0.10/32", "192.0.0.170/32", "192.0.0.171/32", "192.0.2.0/24", "192.31.196.0/24",
    "192.52.193.0/24", "192.88.99.0/24", "192.88.99.2/32", "192.168.0.0/16", "192.175.48.0/24",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "255.255.255.255/32",
    "224.0.0.0/4",
]  # fmt: skip
IPV6 = [
    "::1/128", "::/128", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001::/32",
    "2001:1::1/128", "2001:1::2/128", "2001:1::3/128", "2001:2::/48", "2001:3::/32",
    "2001:4:112::/48", "2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32",
    "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10",
    # Not in the registry any more, or of another one.
    "fec0::/10", "ff00::/8", "::/96", "::ffff:0:0:0/96", "4000::/3", "c000::/3",
]  # fmt: skip
PUBLIC = [
    "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
    "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
    "191.255.255.255", "192.0.1.0", "192.0.1.255", "192.0.3.0", "192.31.195.255", "192.31.197.0",
    "192.52.192.255", "192.52.194.0", "192.88.98.255", "192.88.100.0", "192.167.255.255",
    "192.169.0.0", "192.175.47.255", "192.175.49.0", "198.17.255.255", "198.20.0.0",
    "198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255", "8.8.8.8",
    "2000::", "2001:200::", "2001:db7:ffff::", "2001:db9::", "2001:4860:4860::8888", "2003::",
    "2001:ffff::", "2620:4f:7fff:ffff::", "2620:4f:8001::", "2606:4700::1111", "3ffe:ffff::",
    "3fff:1000::",
]  # fmt: skip
"""Neighbours of the special ranges, and well-known ones."""

POLICY = AddressPolicy([])


def allows(address: str, policy: AddressPolicy = POLICY) -> bool:
    """Whether a name that resolves to this address may be reached."""
    return policy.allows("name.example", ipaddress.ip_address(address))


def members(network: str) -> list[str]:
    """Return the first, the last and some addresses between."""
    found = ipaddress.ip_network(network)
    chance = random.Random(network)
    inner = [chance.randrange(found.num_addresses) for _ in range(5)]
    return [str(found[place]) for place in (0, -1, found.num_addresses // 2, *inner)]


@pytest.mark.parametrize("network", [*IPV4, *IPV6])
def test_special_ranges_are_refused(network: str) -> None:
    """The first address of a range, its last, and what is between."""
    assert not any(map(allows, members(network)))


@pytest.mark.parametrize("address", PUBLIC)
def test_their_neighbours_are_public(address: str) -> None:
    """The ranges end where the registries end them."""
    assert allows(address)


@pytest.mark.parametrize("network", IPV4)
@pytest.mark.parametrize("form", ["::ffff:{}", "64:ff9b::{}"])
def test_ipv4_in_the_clothes_of_ipv6(network: str, form: str) -> None:
    """A mapped or translated address is judged by the IPv4 address that it leads to."""
    assert not any(allows(form.format(address)) for address in members(network))
    assert allows(form.format("8.8.8.8"))


@pytest.mark.parametrize("address", ["2002:808:808::1", "2001:0:808:808::", "2001::"])
def test_tunnels_are_refused_whatever_they_contain(address: str) -> None:
    """6to4 and Teredo lead through relays, to places that their addresses do not show."""
    assert not allows(address)


def test_configured_exceptions() -> None:
    """An allowed network is matched by the address that is reached, not by parts of another one."""
    policy = AddressPolicy(["127.0.0.1", "192.0.0.0/24", "2002::/16", "Printer.Local."])
    assert allows("127.0.0.1", policy) and allows("::ffff:127.0.0.1", policy)
    assert allows("192.0.0.9", policy) and allows("2002:a00:1::", policy)
    assert not allows("127.0.0.2", policy) and not allows("10.0.0.1", policy)
    # A Teredo address whose server is the allowed one, and whose client is anywhere.
    assert not allows("2001:0:7f00:1::", policy)
    assert policy.allows("printer.local", ipaddress.ip_address("10.0.0.1"))
