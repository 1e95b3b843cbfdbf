"""Steps that ask a stand-in for a model, and what their budgets say of it."""

from typing import Any

from agent.config.models import ModelSettings
from agent.models.registry import ModelRegistry, model_of
from agent.workflows.graph import Step
from tests.support.engine import Engine, Hand, other
from tests.support.model_servers import Provider


def catalog(server: Provider, **daily: int) -> ModelRegistry:
    """Return a priced model (a dollar a million tokens), and one without a price."""
    given: dict[str, Any] = {"provider": "openai", "base_url": server.openai_url}
    price: dict[str, Any] = {"usd_per_million_in": 1.0, "usd_per_million_out": 1.0}
    return ModelRegistry(
        {
            "priced": model_of("priced", ModelSettings(**given, **price)),
            "unpriced": model_of("unpriced", ModelSettings(**given, model="a-providers-name")),
        },
        default="priced",
        **daily,
    )


def ask(name: str, /, **options: Any) -> Step:
    """Return an `llm` step whose call reserves less than 300 tokens."""
    config = {"prompt": "hello", "max_tokens": 200, **options.pop("config", {})}
    return other(name, "llm", config=config, **options)


def used(hand: Hand | Engine, name: str) -> tuple[int, ...]:
    """Return a budget's tokens and money, used and reserved."""
    (row,) = hand.rows(
        "SELECT tokens_used, microusd_used, tokens_reserved, microusd_reserved FROM budgets"
        " WHERE id = :id",
        id=name,
    )
    return tuple(row)
