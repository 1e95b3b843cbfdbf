"""The exceptions behind an exception, and whether a retry cannot help because of one of them."""

import ssl
from collections.abc import Iterator


def causes(exception: BaseException | None) -> Iterator[BaseException]:
    """Return an exception and those that it was raised from; an exception group's members too."""
    waiting, seen = [exception], set[int]()
    while waiting:
        error = waiting.pop(0)
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        yield error
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
        waiting += [error.__cause__, error.__context__]


def is_bad_certificate(exception: BaseException | None) -> bool:
    """Whether the certificate of a remote was refused: a second look finds the same."""
    return any(isinstance(error, ssl.SSLCertVerificationError) for error in causes(exception))
