"""Which addresses a step may reach: public ones, and those that the configuration allows.

The check applies to the address of each connection, after resolution, so that neither a redirect nor
a name that resolves differently the next time bypasses it.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

import httpcore

from agent.steps.http.transport_errors import transport_code

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""All public IPv6 addresses; others are special, or were once."""

# The registries of special-purpose addresses of IANA, and multicast. Python's own list
# (`is_global`) differs from version to version. Ranges that the registries call globally reachable,
# such as the anycast addresses of AS112, are refused too: they are infrastructure, and no service
# for a step is there.
_SPECIAL: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by the customers of a carrier
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local, where clouds keep their metadata
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID, DRIP and others
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)


class AddressRefusedError(Exception):
    """A private, loopback, link-local or otherwise special address that is not allowed."""


class AddressPolicy:
    """Public addresses, and the allowed exceptions: addresses, networks and host names."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._networks: list[Network] = []
        self._hosts: set[str] = set()
        for entry in allowed:
            try:
                self._networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                self._hosts.add(entry.lower().rstrip("."))

    def allows(self, host: str, address: Address) -> bool:
        """Whether a connection to this address of this host is allowed."""
        if host.lower().rstrip(".") in self._hosts:
            return True
        destination = _destination(address)
        if any(destination in network for network in self._networks):
            return True
        return _is_public(destination)

    def is_public(self, address: Address) -> bool:
        """Whether an address is one of the public network, whatever is allowed besides."""
        return _is_public(_destination(address))


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    return not any(address in network for network in _SPECIAL)


def _destination(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address maps or translates to; others unchanged.

    Tunnels (6to4, Teredo) are special as a whole, whatever IPv4 address they contain.
    """
    if not isinstance(address, ipaddress.IPv6Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _not_connected(host: str, port: int, problem: Exception) -> str:
    """Say which remote was not reached, and why: httpcore's own message names none."""
    remote = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    code = transport_code(problem)
    if code == "refused":
        return f"{remote} refused the connection"
    if code == "timeout":
        return f"{remote} accepted no connection in time"
    return f"{remote} cannot be reached: {problem}"


async def allowed_addresses(policy: AddressPolicy, host: str, port: int) -> list[Address]:
    """Resolve a name; raise `AddressRefusedError` where the policy allows none of its addresses."""
    try:
        loop = asyncio.get_running_loop()
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
    addresses = [ipaddress.ip_address(str(entry[4][0])) for entry in entries]
    allowed = [address for address in addresses if policy.allows(host, address)]
    if not allowed:
        shown = ", ".join(sorted({str(address) for address in addresses}))
        raise AddressRefusedError(
            f"{host} ({shown}) is not a public address; `http.allow_private` in the configuration"
            " lists the private addresses that steps may reach"
        )
    return list(dict.fromkeys(allowed))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Resolves names, checks the addresses, and connects to exactly the checked addresses.

    The request and the TLS handshake still use the name.
    """

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        problem: Exception | None = None
        for address in await allowed_addresses(self._policy, host, port):
            try:
                return await self._inner.connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                problem = error
        assert problem is not None
        unreached = type(problem)(_not_connected(host, port, problem))
        # As the context: httpcore's pool raises it again `from None`, which drops a cause.
        unreached.__context__ = problem
        raise unreached

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise AddressRefusedError("http steps cannot reach unix sockets")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
