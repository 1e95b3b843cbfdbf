"""The models of the configuration, and the connector of each."""

import sys
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final

from agent.config.models import BudgetSettings, LlmSettings, ModelSettings
from agent.models.errors import ModelError
from agent.models.pricing import Price
from agent.models.protocol import Connector

ECHO: Final = "echo"
_KEYS: Final = {"anthropic": "env:ANTHROPIC_API_KEY", "openai": "env:OPENAI_API_KEY"}
"""The default reference to a provider's key."""


@dataclass(frozen=True, slots=True)
class Model:
    """One model that steps may name."""

    name: str
    provider: str
    model: str
    """The provider's name of it."""
    base_url: str | None
    key: str | None
    """A reference to its key (`env:NAME` and the like), never the key; None for a model without a key."""
    price: Price | None
    """None when the configuration has no price: the model is then refused wherever money is capped."""
    max_output_tokens: int | None
    context_tokens: int | None
    timeout_seconds: float
    has_structured_output: bool
    can_see: bool = True
    """Whether it accepts images."""


def model_of(name: str, settings: ModelSettings) -> Model:
    """Return a model as its section of the configuration describes it."""
    price = None
    if settings.provider == ECHO:
        price = Price(settings.usd_per_million_in or 0.0, settings.usd_per_million_out or 0.0)
    elif settings.usd_per_million_in is not None and settings.usd_per_million_out is not None:
        price = Price(settings.usd_per_million_in, settings.usd_per_million_out)
    # A server at `base_url` needs no key unless the configuration names one.
    default_key = None if settings.base_url else _KEYS.get(settings.provider)
    return Model(
        name=name,
        provider=settings.provider,
        model=settings.model or name,
        base_url=settings.base_url or None,
        key=settings.key or default_key,
        price=price,
        max_output_tokens=settings.max_output_tokens,
        context_tokens=settings.context_tokens,
        timeout_seconds=settings.timeout_seconds,
        has_structured_output=settings.structured_output,
        can_see=settings.images,
    )


@dataclass(slots=True)
class ModelRegistry:
    """All models, the default model, and the daily limits."""

    models: dict[str, Model] = field(default_factory=dict)
    default: str = ""
    max_tokens: int = 4096
    """The length of an answer in tokens, if the step sets none."""
    daily_tokens: int | None = None
    daily_microusd: int | None = None
    daily_ms: int | None = None

    def replace_with(self, other: "ModelRegistry") -> None:
        """Take over models, default and limits; calls in flight keep their model."""
        for name in ModelRegistry.__slots__:
            setattr(self, name, getattr(other, name))

    def get(self, name: str | None) -> Model:
        """Return a model by its name, or the default; raise `ModelError` when there is none."""
        chosen = name or self.default
        if not chosen:
            raise _unknown(
                "no model is named: give the step a `model`, or set `model` in [llm] of the"
                f" configuration; there are {self._names()}"
            )
        if chosen == ECHO and chosen not in self.models:
            return model_of(ECHO, ModelSettings(provider=ECHO))
        model = self.models.get(chosen)
        if model is None:
            raise _unknown(
                f"there is no model {chosen!r}: add [models.{chosen}] to the configuration;"
                f" there are {self._names()}"
            )
        return model

    def _names(self) -> str:
        return ", ".join(sorted({*self.models, ECHO}))


def registry_of(
    models: dict[str, ModelSettings], llm: LlmSettings, budget: BudgetSettings
) -> ModelRegistry:
    """Return the models that the configuration describes."""
    return ModelRegistry(
        models={name: model_of(name, settings) for name, settings in models.items()},
        default=llm.model,
        max_tokens=llm.max_tokens,
        daily_tokens=budget.daily_tokens or None,
        daily_microusd=_limit(budget.daily_usd, 1_000_000),
        daily_ms=_limit(budget.daily_seconds, 1000),
    )


def _limit(amount: float, parts: int) -> int | None:
    """Return a limit in whole parts of its unit, at least one; None without a limit."""
    return max(1, round(amount * parts)) if amount > 0 else None


def load(model: Model) -> None:
    """Import the connector of a model's provider; any thread may call this.

    Raises `ModelError` where the provider's library is not installed: only some users need it.
    """
    try:
        import_module(_module_of(model))
    except ModuleNotFoundError as error:
        if error.name != model.provider:
            raise
        raise ModelError(
            "no_library",
            "input",
            f"model {model.name} needs a library: `python -m pip install {model.provider}`",
            may_retry=False,
        ) from None


def is_loaded(model: Model) -> bool:
    """Whether the connector of a model's provider is imported."""
    module = sys.modules.get(_module_of(model))
    # Another thread may be importing it.
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def _module_of(model: Model) -> str:
    return f"agent.models.{model.provider}"


def connect(model: Model, key: str | None) -> Connector:
    """Return a connector to a model's provider; its SDK is imported here."""
    if model.provider == "anthropic":
        from agent.models.anthropic import AnthropicConnector

        return AnthropicConnector(model, key)
    if model.provider == "openai":
        from agent.models.openai import OpenAIConnector

        return OpenAIConnector(model, key)
    from agent.models.echo import EchoConnector

    return EchoConnector(model)


def _unknown(message: str) -> ModelError:
    return ModelError("no_such_model", "input", message, may_retry=False)
