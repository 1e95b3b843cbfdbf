"""Exit codes, and the message of an error."""

import sys
from enum import IntEnum
from typing import NoReturn

from agent.core.escape import harmless, harmless_json


class Exit(IntEnum):
    """How a command ended, for scripts."""

    DONE = 0
    TASK_FAILED = 1
    BAD_INPUT = 2
    REFUSED = 3
    """Not found, or not allowed in this state."""
    WAITING = 4
    """The task waits for a person."""
    NO_DATABASE = 5
    DEFECT = 70
    """A defect of the program."""
    INTERRUPTED = 130


class CommandError(Exception):
    """A command failed: the message is for people, the code for scripts."""

    def __init__(self, message: str, code: Exit = Exit.BAD_INPUT) -> None:
        super().__init__(message)
        self.code = code


def leave(error: BaseException, *, as_json: bool) -> NoReturn:
    """Print the error once and exit with its code."""
    code, message = classify(error)
    if code is Exit.INTERRUPTED:
        raise SystemExit(int(code))
    if as_json:
        document = {"error": {"code": code.name.lower(), "message": message}}
        print(harmless_json(document), flush=True)
    print(harmless(f"agent: {message}"), file=sys.stderr, flush=True)
    raise SystemExit(int(code))


def classify(error: BaseException) -> tuple[Exit, str]:
    """Return the exit code and the message of an error."""
    if isinstance(error, CommandError):
        return error.code, str(error)
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED, "interrupted"
    # By name: loading the modules of these classes would be slow.
    for name in (kind.__name__ for kind in type(error).__mro__):
        if name in _CODES:
            return _CODES[name], str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Exit.BAD_INPUT, f"{where}{error.strerror or error}"
    return Exit.DEFECT, (
        f"internal error: {type(error).__name__}: {error} (AGENT_TRACE=1 shows where)"
    )


_CODES = {
    "ConfigError": Exit.BAD_INPUT,
    "UnsafeBindError": Exit.BAD_INPUT,
    "ExposedError": Exit.REFUSED,
    "TokenError": Exit.REFUSED,
    "InputError": Exit.BAD_INPUT,
    "TooManyStepsError": Exit.BAD_INPUT,
    "WorkflowError": Exit.BAD_INPUT,
    "NotPlainJsonError": Exit.BAD_INPUT,
    "InvalidAnswerError": Exit.BAD_INPUT,
    "InvalidTimeError": Exit.BAD_INPUT,
    "NotAllowedError": Exit.REFUSED,
    "NotFoundError": Exit.REFUSED,
    "AmbiguousIdError": Exit.REFUSED,
    "UnreadableError": Exit.REFUSED,
    "RefusedError": Exit.REFUSED,
    "OlderWorkersError": Exit.REFUSED,
    "StoreError": Exit.NO_DATABASE,
}
