"""Who may answer: the one place that says so, for every channel and every question."""

from collections.abc import Sequence

from agent.steps.spec.questions import CHANNELS, CHATS


class NotAllowedError(Exception):
    """Somebody may not answer a question, or not from there."""


def check(who: Sequence[str], by: str, channel: str, *, is_paired: bool = False) -> None:
    """Raise `NotAllowedError` unless this person may answer from this channel.

    `by` is an identity that the channel itself has established. In chats nobody may answer until
    paired. `who` is the question's own list: channels, or identities in them as in `telegram:123`;
    an empty one leaves it to the channels.
    """
    if channel not in CHANNELS:
        raise NotAllowedError(f"nobody can answer from {channel!r}")
    if channel in CHATS and not is_paired:
        raise NotAllowedError(f"{by} is not paired with this agent, and may not answer")
    if who and channel not in who and f"{channel}:{by}" not in who:
        raise NotAllowedError(f"{by} may not answer this from {channel}: {', '.join(who)} may")
