"""What a call of a model costs, and what it may cost at most; money in millionths of a US dollar."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from agent.models.protocol import ModelRequest

BYTES_PER_TOKEN: Final = 2
"""For what is set aside before a call. Texts have more bytes a token, so it is rarely too little."""
_MESSAGE_TOKENS: Final = 16
_LEAST_BYTES_PER_TOKEN: Final = 16
"""No text has more: a prompt longer than this in a model's context surely does not fit."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens, which is millionths of a dollar for one."""

    usd_per_million_in: float
    usd_per_million_out: float

    def cost(self, tokens_in: int, tokens_out: int) -> int:
        """Return what so many tokens cost, rounded up."""
        cost = tokens_in * self.usd_per_million_in + tokens_out * self.usd_per_million_out
        return math.ceil(round(cost, 6))


def most_tokens_in(request: ModelRequest) -> int:
    """Return how many tokens a request has, rather too many than too few."""
    texts = list(_texts(request))
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    return -(-size // BYTES_PER_TOKEN) + _MESSAGE_TOKENS * (len(texts) + 1)


def surely_exceeds(request: ModelRequest, context_tokens: int) -> bool:
    """Whether a request cannot fit a context, however well its text packs."""
    size = sum(len(text) for text in _texts(request))
    return size // _LEAST_BYTES_PER_TOKEN > context_tokens


def _texts(request: ModelRequest) -> Iterable[str]:
    if request.system:
        yield request.system
    for message in request.messages:
        yield message.text
        for use in message.tool_uses:
            yield f"{use.name} {use.arguments}"
    for tool in request.tools:
        yield f"{tool.name} {tool.description} {tool.schema}"
    if request.schema is not None:
        yield str(request.schema)
