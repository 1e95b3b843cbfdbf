"""Where in a chat a task was started: the channel, the account, and the thread if there is one.

`tasks.chat_origin` holds it as JSON. Children, retries and forks of the task inherit it. It is another
thing than `tasks.origin_id`, the first task of a line of retries.
"""

import json
from typing import Any

from agent.core.quick_classes.quick_dataclasses import dataclass, values_of


@dataclass(frozen=True, slots=True)
class ChatOrigin:
    """The place that a message to `origin` goes to."""

    channel: str
    recipient: str
    """The account, by the platform's own id; of `agent chat` the user's name."""
    thread: str | None = None
    """Of Slack, `CONVERSATION:TIMESTAMP` of the thread's first message."""

    @property
    def conversation(self) -> str:
        """A stable name of the conversation, such as `telegram:123` or `slack:D1:1700000000.0001`."""
        return f"{self.channel}:{self.thread or self.recipient}"

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return values_of(self)

    def dump(self) -> str:
        """Return it as it is stored."""
        return json.dumps(self.document(), ensure_ascii=False)


def read_origin(text: str | None) -> ChatOrigin | None:
    """Read a stored origin; None where there is none."""
    if text is None:
        return None
    document = json.loads(text)
    return ChatOrigin(document["channel"], document["recipient"], document.get("thread"))


def origin_prefix(channel: str) -> str:
    """Return the pattern (of SQL's LIKE) of the stored origins in a channel."""
    return ChatOrigin(channel, "").dump().partition(",")[0] + ",%"


def with_origin(trigger: Any, origin: ChatOrigin | None) -> Any:
    """Return a task's trigger as templates see it: with the origin and its conversation."""
    if origin is None:
        return trigger
    known = trigger if isinstance(trigger, dict) else {}
    return {**known, "origin": origin.document(), "conversation": origin.conversation}
