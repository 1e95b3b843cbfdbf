"""The cost of a call of a model, and its upper bound, in millionths of a US dollar."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from agent.models.protocol import ModelRequest

BYTES_PER_TOKEN: Final = 2
"""For the reservation before a call. Texts have more bytes per token, so it is rarely too little."""
_MESSAGE_TOKENS: Final = 16
_IMAGE_TOKENS: Final = 5000
"""Providers scale images down: none takes more."""
ENTRY_TOKENS: Final = 4
"""Tokens of a message besides its text, for estimates."""
_USUAL_BYTES_PER_TOKEN: Final = 4
_MAX_BYTES_PER_TOKEN: Final = 16
"""No text has more bytes per token: a prompt beyond this certainly does not fit a context."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens, which is millionths of a dollar per token."""

    usd_per_million_in: float
    usd_per_million_out: float

    def cost(self, tokens_in: int, tokens_out: int) -> int:
        """Return the cost, rounded up."""
        cost = tokens_in * self.usd_per_million_in + tokens_out * self.usd_per_million_out
        return math.ceil(round(cost, 6))


def max_input_tokens(request: ModelRequest) -> int:
    """Return an upper estimate of the tokens of a request."""
    texts = list(_texts(request))
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    images = sum(len(message.images) for message in request.messages)
    return -(-size // BYTES_PER_TOKEN) + _MESSAGE_TOKENS * (len(texts) + 1) + _IMAGE_TOKENS * images


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    return -(-len(text.encode("utf-8", "replace")) // _USUAL_BYTES_PER_TOKEN)


def surely_exceeds(request: ModelRequest, context_tokens: int) -> bool:
    """Whether a request cannot fit a context, whatever the tokenizer."""
    size = sum(len(text) for text in _texts(request))
    return size // _MAX_BYTES_PER_TOKEN > context_tokens


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
