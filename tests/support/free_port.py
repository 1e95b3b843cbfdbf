"""A port for a server that a test starts later."""

import random
import socket


def free_port() -> int:
    """Return a port that nothing uses, below those that the kernel gives to outgoing connections.

    Another connection could take a port of that range before the test's server binds it.
    """
    chance = random.Random()  # not seeded: tests that run beside each other must differ
    while True:
        port = chance.randrange(20_000, 32_000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
