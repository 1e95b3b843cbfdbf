import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.triggers.watchers.mailboxes import mail
from agent.triggers.watchers.source import SourceError
from tests.support import imap_server as support
from tests.support.imap_server import PASSWORD, ImapServer, imap_server, mail_keys
from tests.support.watching import poll

_TLS = Path(support.__file__).parent / "tls"


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)


@pytest.fixture(scope="module")
def certificate() -> ssl.SSLContext:
    """Return the context of a server with a certificate for `localhost`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(_TLS / "server.pem")
    return context


@pytest.fixture(scope="module", params=["implicit", "starttls"])
def encrypted(
    request: pytest.FixtureRequest, certificate: ssl.SSLContext
) -> Iterator[tuple[str, ImapServer]]:
    """Run a server of each mode."""
    is_implicit = request.param == "implicit"
    with imap_server(
        implicit_tls=certificate if is_implicit else None,
        starttls=None if is_implicit else certificate,
    ) as server:
        yield request.param, server


def test_a_certificate_of_a_known_authority(
    encrypted: tuple[str, ImapServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`SSL_CERT_FILE` names the authority of a private mail server."""
    monkeypatch.setenv("SSL_CERT_FILE", str(_TLS / "authority.pem"))
    tls, server = encrypted
    found = poll(mail.open_source(mail_keys(server.port, host="localhost", tls=tls)))
    assert found.items == []
    assert found.cursor["uid"] > 0


def test_an_unknown_authority_is_refused(encrypted: tuple[str, ImapServer]) -> None:
    """A certificate is always verified."""
    tls, server = encrypted
    with pytest.raises(SourceError, match="the certificate of localhost is not valid"):
        poll(mail.open_source(mail_keys(server.port, host="localhost", tls=tls)))


def test_a_certificate_of_another_host_is_refused(
    encrypted: tuple[str, ImapServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate has to name the host of the definition."""
    monkeypatch.setenv("SSL_CERT_FILE", str(_TLS / "authority.pem"))
    tls, server = encrypted
    with pytest.raises(SourceError, match=r"the certificate of 127\.0\.0\.1 is not valid"):
        poll(mail.open_source(mail_keys(server.port, tls=tls)))


@pytest.mark.parametrize(
    ("tls", "expected"),
    [("implicit", "TLS with 127.0.0.1 failed"), ("starttls", "has no STARTTLS")],
)
def test_a_server_without_tls(plain: ImapServer, tls: str, expected: str) -> None:
    """No password is sent to a server that does not encrypt."""
    with pytest.raises(SourceError, match=expected):
        poll(mail.open_source(mail_keys(plain.port, tls=tls)))


@pytest.fixture(scope="module")
def plain() -> Iterator[ImapServer]:
    """Run a server that does not encrypt."""
    with imap_server() as server:
        yield server
