"""The source `keyring:SERVICE/NAME`: an entry of the system's keyring, through the library `keyring`."""

from agent.steps.attempt.secret_sources import SecretReadError


def read_entry(name: str) -> str:
    """Return an entry of the keyring; raise `SecretReadError`. This blocks while a person unlocks it."""
    try:
        import keyring
        from keyring.errors import KeyringError, KeyringLocked, NoKeyringError
    except ImportError:
        raise SecretReadError(
            "keyring: needs the library keyring, which is not installed:"
            " `python -m pip install keyring`"
        ) from None
    service, _, user = name.rpartition("/")
    shown = f"keyring:{name}"
    try:
        value = keyring.get_password(service, user)
    except KeyringLocked:
        raise SecretReadError(
            f"{shown} cannot be read: the keyring is locked; unlock it, then try again"
        ) from None
    except NoKeyringError:
        raise SecretReadError(
            f"{shown} cannot be read: this system has no keyring that the library finds"
            " (`python -m keyring diagnose` shows which it looks for)"
        ) from None
    except KeyringError as error:
        raise SecretReadError(f"{shown} cannot be read: {error}") from None
    except Exception as error:
        # A backend may raise anything; its text may contain anything.
        raise SecretReadError(
            f"{shown} cannot be read: the keyring failed with {type(error).__name__}"
        ) from None
    if not value:
        raise SecretReadError(
            f"the keyring has no entry {user!r} of service {service!r}:"
            f" `python -m keyring set {service} {user}` adds it"
        )
    return str(value)
