"""Permission to answer: decided here for every channel and every question."""

from collections.abc import Sequence

from agent.steps.spec.questions import CHANNELS, CHATS


class NotAllowedError(Exception):
    """The person may not answer the question, or not from this channel."""


def check(who: Sequence[str], by: str, channel: str, *, is_paired: bool = False) -> None:
    """Raise `NotAllowedError` unless this person may answer from this channel.

    `by` is an identity that the channel has established. In a chat only paired people may answer.
    `who` is the question's own list of channels and identities, such as `telegram:123`; if it is
    empty, every channel may.
    """
    if channel not in CHANNELS:
        raise NotAllowedError(f"{channel!r} is not a channel that can answer")
    if channel in CHATS and not is_paired:
        raise NotAllowedError(f"{by} is not paired with this agent, and may not answer")
    if who and channel not in who and f"{channel}:{by}" not in who:
        raise NotAllowedError(f"{by} may not answer this from {channel}: {', '.join(who)} may")
