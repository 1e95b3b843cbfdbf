"""The two errors that commands, queries and submissions raise for the caller to show.

Imports nothing, so every package of the engine may raise them.
"""


class NotFoundError(Exception):
    """There is no such task, step, approval or workflow; the message names it."""


class RefusedError(Exception):
    """The request is not allowed in the present state; the message says why."""
