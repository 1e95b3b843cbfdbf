"""Tells the two meanings of SIGHUP apart: the terminal was closed, or the settings changed."""

import os


class ControllingTerminal:
    """The terminal that this process was started in, if any."""

    def __init__(self) -> None:
        self._was_there = _is_there()

    def is_lost(self) -> bool:
        """Whether there was one and it was closed since."""
        return self._was_there and not _is_there()


def _is_there() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
