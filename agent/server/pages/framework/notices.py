"""Short messages about the effect of an action, shown once on the page that follows it."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Literal

from agent.server.access.grants import TokenGrant

Tone = Literal["done", "problem"]

_MAX_SESSIONS: Final = 1000
_MAX_NOTICES: Final = 5


@dataclass(frozen=True, slots=True)
class Notice:
    """One message."""

    tone: Tone
    text: str


class Notices:
    """Messages that a session has not seen yet; they are lost when the daemon stops."""

    def __init__(self) -> None:
        self._unseen: OrderedDict[str, list[Notice]] = OrderedDict()

    def add(self, grant: TokenGrant, text: str, tone: Tone = "done") -> None:
        """Keep a message for a session's next page."""
        unseen = self._unseen.setdefault(grant.hash, [])
        unseen.append(Notice(tone, text))
        del unseen[:-_MAX_NOTICES]
        self._unseen.move_to_end(grant.hash)
        while len(self._unseen) > _MAX_SESSIONS:
            self._unseen.popitem(last=False)

    def has(self, grant: TokenGrant) -> bool:
        """Whether a session has messages that it has not seen."""
        return grant.hash in self._unseen

    def take(self, grant: TokenGrant) -> list[Notice]:
        """Return the messages of a session, which are then seen."""
        return self._unseen.pop(grant.hash, [])
