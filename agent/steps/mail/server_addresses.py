"""The addresses of mail servers: resolved, checked against the policy, and verified by TLS."""

import ipaddress
import socket
import ssl
from typing import Final

from agent.steps.http.address_policy import AddressPolicy

PLAIN: Final = "none"
"""The value of `tls` for a connection that is not encrypted."""


class ServerAddressError(Exception):
    """A mail server that must not be reached; the message is for a person."""


class UnresolvedServerError(ServerAddressError):
    """A host name that has no address now."""


def checked_addresses(
    host: str, port: int, tls: str, policy: AddressPolicy, *, may_be_plain_in_private: bool = False
) -> list[str]:
    """Return the addresses of a server that a connection may use; blocks while it resolves.

    Without TLS only this machine may be reached, and with `may_be_plain_in_private` the private
    addresses that the configuration allows.
    """
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnresolvedServerError(f"{host} cannot be resolved: {error}") from None
    addresses = [ipaddress.ip_address(str(entry[4][0])) for entry in entries]
    shown = ", ".join(sorted(set(map(str, addresses))))
    if tls == PLAIN and not all(
        is_loopback(address) or (may_be_plain_in_private and not policy.is_public(address))
        for address in addresses
    ):
        raise ServerAddressError(
            f"{host} ({shown}) is not this machine: without TLS others could read the password. Use"
            " `tls: implicit` or `tls: starttls`"
        )
    allowed = [str(address) for address in addresses if policy.allows(host, address)]
    if not allowed:
        raise ServerAddressError(
            f"{host} ({shown}) is not a public address; `http.allow_private` in the configuration"
            " lists the private addresses that may be reached"
        )
    return list(dict.fromkeys(allowed))


def is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is this machine's own."""
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def tls_context() -> ssl.SSLContext:
    """Return a context that verifies certificates as the `http` step does, `SSL_CERT_FILE` included."""
    import httpx

    return httpx.create_ssl_context()
