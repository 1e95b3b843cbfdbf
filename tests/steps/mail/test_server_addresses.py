import pytest

from agent.steps.http.address_policy import AddressPolicy
from agent.steps.mail.server_addresses import ServerAddressError, checked_addresses


def test_without_tls_no_public_server_is_reached() -> None:
    """Others could read the password; with TLS the same server may be reached."""
    policy = AddressPolicy(("8.8.8.8",))
    for may_be_plain in (False, True):
        with pytest.raises(ServerAddressError, match="without TLS others could read"):
            checked_addresses("8.8.8.8", 25, "none", policy, may_be_plain_in_private=may_be_plain)
    assert checked_addresses("8.8.8.8", 465, "implicit", policy) == ["8.8.8.8"]


def test_a_private_server_without_tls() -> None:
    """A step may use one that is allowed; a watcher may use this machine alone."""
    policy = AddressPolicy(("10.0.0.0/8", "127.0.0.1"))
    with pytest.raises(ServerAddressError, match="is not this machine"):
        checked_addresses("10.1.2.3", 25, "none", policy)
    found = checked_addresses("10.1.2.3", 25, "none", policy, may_be_plain_in_private=True)
    assert found == ["10.1.2.3"]
    with pytest.raises(ServerAddressError, match="not a public address"):
        checked_addresses("192.168.1.1", 25, "none", policy, may_be_plain_in_private=True)
    assert checked_addresses("127.0.0.1", 25, "none", policy) == ["127.0.0.1"]
