"""A chat with people in it, beside a running engine."""

import re
from collections.abc import Callable
from pathlib import Path

from agent.channels.chat import pairing
from agent.channels.messages.messenger import ChannelMessenger
from agent.channels.supervisor import Channels
from agent.config.settings import Settings
from agent.store.channels.pairings import Pairing
from tests.support.chat_server import Peer, received
from tests.support.engine import Engine

Open = Callable[[Settings], Channels]


def close(channels: Channels) -> None:
    """End channels and wait until they have ended."""
    channels.stop()
    channels._thread.join(60)
    assert not channels._thread.is_alive()


class Chat:
    """A chat with people in it, beside a running engine."""

    def __init__(self, peer: Peer, engine: Engine, begin: Open, base: Path) -> None:
        self.peer = peer
        self.engine = engine
        self.settings = Settings(base=base, channels=peer.settings())
        self._begin = begin
        self.channels = begin(self.settings)
        engine.worker.services.messenger = ChannelMessenger(self.settings, engine.database)

    def restart(self) -> None:
        """Stop the channels and start new ones, as another process would."""
        close(self.channels)
        self.channels = self._begin(self.settings)

    def code(self, identity: str) -> str:
        """Let a stranger write, and return the code that they are given."""
        self.peer.write(identity, "hello")
        found = re.search(r"agent pair (\S+)", received(self.peer, identity, "agent pair").text)
        assert found is not None
        return found[1]

    def pair(self, number: int = 1, *scopes: str) -> str:
        """Pair a person, and return who they are."""
        identity = self.peer.identity(number)
        self.confirm(self.code(identity), *scopes)
        received(self.peer, identity, "is paired with the agent")
        return identity

    def confirm(self, code: str, *scopes: str) -> Pairing:
        """Confirm a code, as the command line does."""
        given = list(scopes) or list(pairing.DEFAULT_SCOPES)
        return pairing.confirm(self.engine.database, code, given)
