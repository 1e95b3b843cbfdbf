"""No tasks run where other users can change the files that the agent acts on."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.cli.errors import CommandError

if TYPE_CHECKING:
    from agent.config.settings import Settings


def require(settings: "Settings", notify: Callable[[str], None]) -> None:
    """Close the home directory to other users; raise `ExposedError` where that is not enough.

    `notify` gets one line about each file whose access was changed.
    """
    from agent.config import file_exposure

    try:
        changes = file_exposure.close_to_others(settings)
    except ValueError as error:
        raise CommandError(f"trusted_users or trusted_groups in [agent]: {error}") from None
    for line in changes:
        notify(line)
