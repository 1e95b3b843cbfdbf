"""Who may do what: the only module that decides it, for every surface.

A surface identifies the caller as a `Principal`: a chat by its pairing, the HTTP API by its token, a
link by its signature, the command line by the user of the operating system. It then calls
`check_scope` before a command and `check_answer` before an answer to an approval. Which scope a
command needs is declared where the command is (`agent.channels.chat.commands`, the routes of
`agent.server`); what the scopes include, in `agent.core.scopes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.core.scopes import SCOPES, Scope, implied, may_work, work_scopes
from agent.steps.spec.questions import CHANNELS, CHATS

ALL_SCOPES: Final = implied(SCOPES)


class NotAllowedError(Exception):
    """The caller may not do this, or not from this channel."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller, as its channel has identified it."""

    channel: str
    identity: str
    scopes: frozenset[Scope] = frozenset()
    is_paired: bool = False
    queues: frozenset[str] = frozenset()
    """Its scopes for external workers, such as `work:review`; `admin` includes all of them."""

    @property
    def is_worker(self) -> bool:
        """Whether it may do the work of any queue."""
        return bool(work_scopes(self.scopes | self.queues))

    def may_work(self, queue: str) -> bool:
        """Whether it may do the work of a queue."""
        return may_work(self.scopes | self.queues, queue)

    @property
    def is_stranger(self) -> bool:
        """Whether this is an account in a chat that is not paired: it may do nothing."""
        return self.channel in CHATS and not self.is_paired


def terminal_user(name: str) -> Principal:
    """Return the user of this machine's command line, who may do everything."""
    return Principal("terminal", name, ALL_SCOPES)


def check_scope(principal: Principal, scope: Scope, action: str) -> None:
    """Raise `NotAllowedError` unless the caller is known and has a scope."""
    if principal.is_stranger:
        raise NotAllowedError(f"{principal.identity} is not paired with this agent")
    if scope not in principal.scopes:
        raise NotAllowedError(f"{action} needs the scope {scope!r}")


def check_worker(principal: Principal) -> None:
    """Raise `NotAllowedError` unless the caller may do the work of some queue."""
    if principal.is_stranger or not principal.is_worker:
        raise NotAllowedError("this needs a scope of a queue, such as 'work:QUEUE' or 'work:*'")


def check_queue(principal: Principal, queue: str) -> None:
    """Raise `NotAllowedError` unless the caller may do the work of a queue."""
    if not principal.may_work(queue):
        raise NotAllowedError(f"the queue {queue!r} needs the scope 'work:{queue}'")


def check_answer(principal: Principal, who: Sequence[str]) -> None:
    """Raise `NotAllowedError` unless the caller may answer an approval.

    `who` is the approval's own list: channels, or identities in them as in `telegram:123`. An empty
    list admits every caller with the scope `approve`.
    """
    channel, identity = principal.channel, principal.identity
    if channel not in CHANNELS:
        raise NotAllowedError(f"answers are not accepted from {channel!r}")
    check_scope(principal, "approve", "an answer")
    if who and channel not in who and f"{channel}:{identity}" not in who:
        raise NotAllowedError(
            f"{identity} may not answer this from {channel}; allowed: {', '.join(who)}"
        )


def may_answer(principal: Principal, who: Sequence[str]) -> bool:
    """Whether the caller may answer an approval."""
    try:
        check_answer(principal, who)
    except NotAllowedError:
        return False
    return True
