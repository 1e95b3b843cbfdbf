"""The sections of the configuration about models: their settings, and what tasks may use of them."""

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from agent.core import secret_reference
from agent.core.quick_classes.quick_fields import (
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from agent.core.quick_classes.quick_models import BaseModel
from agent.core.secret_reference import FORMS

REFERENCE = secret_reference.PATTERN_OR_EMPTY
"""Where a secret is; never the secret itself."""


Bare = Annotated[str, Field(pattern=r"^[^\"']+$")]
"""A name without quotes around it."""


class Section(BaseModel):
    """One section of the file: its keys and nothing else."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def section() -> Any:
    """Return the field of a section inside another one; a file that leaves it out has its defaults.

    They are validated as a part of the outer section: a default instance would need a validator of its own,
    and to build one for each section takes longer than to read the file.
    """
    return Field(default_factory=dict, validate_default=True)


class LlmSettings(Section):
    """Steps that ask a model. Models are described at the end of this file."""

    model: str = Field(
        default="",
        description="The model of steps that name none. Empty: each step must name its own.",
    )
    max_tokens: int = Field(
        default=4096,
        ge=1,
        le=10_000_000,
        description="The longest answer, in tokens, where a step does not say.",
    )


class BudgetSettings(Section):
    """What all tasks together may use in one day (UTC). 0: no limit."""

    daily_tokens: int = Field(default=0, ge=0, le=10**15, description="Tokens, in and out.")
    daily_usd: float = Field(default=0.0, ge=0, le=10**9, description="Money, in US dollars.")
    daily_seconds: float = Field(
        default=0.0,
        ge=0,
        le=10**9,
        description="Time that calls of models take, added up; while one runs, its timeout counts.",
    )


class ArtifactSettings(Section):
    """Where outputs larger than inline_output_bytes are kept."""

    url: str = Field(
        default="",
        description="Empty: in the database. A directory, relative to this file; or the URL of an"
        ' object store, as in "s3://bucket/path", with the library fsspec and its driver for'
        " it (here s3fs) installed.",
    )
    timeout_seconds: float = Field(
        default=30.0,
        ge=1,
        le=600,
        description="A value that could not be written or read within this time is retried"
        " later; only the steps that need it wait.",
    )
    endpoint_url: str = Field(
        default="",
        pattern=r"^$|^https?://[^\s]+$",
        description='Of an S3 store that is not Amazon\'s, as in "http://127.0.0.1:9000".',
    )
    region: str = Field(default="", description="Of an S3 store.")
    key: str = Field(
        default="",
        pattern=REFERENCE,
        description=f"Where the access key of an S3 store is: {FORMS}. Empty: where"
        " its driver finds one by itself.",
    )
    secret: str = Field(
        default="",
        pattern=REFERENCE,
        description="Where the secret that belongs to the key is.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="What else fsspec's driver takes, for any store; a text may be a reference,"
        ' as in { token = "file:/run/secrets/token" }.',
    )

    @field_validator("url")
    @classmethod
    def _has_a_driver(cls, url: str) -> str:
        for scheme in _unknown_schemes(url):
            raise ValueError(
                f'fsspec has no driver for "{scheme}://": use a directory, or the URL of an object'
                ' store, as in "s3://bucket/path"'
            )
        if (problem := _address_problem(url)) is not None:
            raise ValueError(problem)
        return url

    @model_validator(mode="after")
    def _fits_the_store(self) -> "ArtifactSettings":
        if bool(self.key) != bool(self.secret):
            raise ValueError("key and secret go together")
        s3_keys = self.endpoint_url or self.region or self.key
        if s3_keys and not self.url.startswith(("s3://", "s3a://")):
            raise ValueError("endpoint_url, region, key and secret need an s3:// url")
        if self.options and "://" not in self.url:
            raise ValueError("options need the url of a store")
        return self

    def storage_options(self) -> dict[str, Any]:
        """Return the options of fsspec's driver; references to secrets are not resolved."""
        options: dict[str, Any] = {}
        if self.url.startswith(("s3://", "s3a://")):
            # The client would wait for a minute and retry four times by itself.
            seconds = self.timeout_seconds
            options["config_kwargs"] = {
                "connect_timeout": min(5.0, seconds),
                "read_timeout": seconds,
                "retries": {"max_attempts": 1},
            }
            named = {"endpoint_url": self.endpoint_url, "key": self.key, "secret": self.secret}
            options |= {name: value for name, value in named.items() if value}
            if self.region:
                options["client_kwargs"] = {"region_name": self.region}
        return options | self.options


def _address_problem(url: str) -> str | None:
    """Return what is wrong with the host or the port of a store's URL."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme in ("file", "local", "memory") or "::" in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"{error}"
    if not parts.netloc.rpartition("@")[2]:
        return f'names no host or bucket: write it as "{scheme}://HOST/path"'
    return None


def _unknown_schemes(url: str) -> list[str]:
    """Return the schemes of a store's URL that no driver is known for; none without fsspec."""
    if "://" not in url or url.startswith("file://"):
        return []
    try:
        from fsspec.registry import known_implementations, registry
    except ImportError:
        # `agent doctor` says that the library is missing.
        return []
    # In `simplecache::s3://bucket` the first link is a scheme alone.
    schemes = [link.partition("://")[0] for link in url.split("::")]
    return [name for name in schemes if name not in known_implementations and name not in registry]


class ModelSettings(Section):
    """One model that steps may name: `[models.NAME]`."""

    provider: Literal["anthropic", "openai", "echo"]
    model: str = ""
    base_url: str = Field(default="", pattern=r"^$|^https?://.+")
    key: str = Field(default="", pattern=REFERENCE)
    usd_per_million_in: float | None = Field(default=None, ge=0, le=10**6)
    usd_per_million_out: float | None = Field(default=None, ge=0, le=10**6)
    max_output_tokens: int | None = Field(default=None, ge=1, le=10**8)
    context_tokens: int | None = Field(default=None, ge=1, le=10**9)
    timeout_seconds: float = Field(default=600.0, gt=0, le=86_400)
    structured_output: bool = True
    images: bool = True


class McpSettings(Section):
    """One MCP server whose tools `agent` steps may use: `[mcp.NAME]`."""

    command: str = ""
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str = ""
    url: str = Field(default="", pattern=r"^$|^https?://.+")
    headers: dict[str, str] = Field(default_factory=dict)
    tools: list[str] = Field(default_factory=list)
    timeout_seconds: float = Field(default=60.0, gt=0, le=86_400)

    @model_validator(mode="after")
    def _one_way(self) -> "McpSettings":
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either command, a program that is started, or url")
        if self.url and (self.args or self.env or self.cwd):
            raise ValueError("args, env and cwd need command")
        if self.command and self.headers:
            raise ValueError("headers need url")
        return self


MODELS_TEXT = """\
# Models that `llm` steps may name, one section each. `echo` is always there: it needs no key and
# repeats its prompt, for trying things out.
#
# [models.claude]
# provider = "anthropic"             # or "openai": OpenAI, and every server that speaks its protocol
# model = "claude-sonnet-5-5"        # its name at the provider
# key = "env:ANTHROPIC_API_KEY"      # where the key is (a reference, see [secrets]), never the key itself
# usd_per_million_in = 3.0           # prices, as your provider publishes them; a model without
# usd_per_million_out = 15.0         # them is refused wherever money is capped
# max_output_tokens = 64000          # optional
# context_tokens = 200000            # optional
# timeout_seconds = 600.0            # for one answer, where the step has no timeout
#
# [models.local]
# provider = "openai"
# base_url = "http://127.0.0.1:11434/v1"
# model = "some-local-model"
# usd_per_million_in = 0.0
# usd_per_million_out = 0.0
# structured_output = false          # for servers that do not know response_format
# images = false                     # for models that cannot see: tools' images are only named to them
#
# MCP servers whose tools `agent` steps may use, one section each.
#
# [mcp.notes]
# command = "notes-server"           # a program, started for each attempt that uses it
# args = ["--stdio"]
# env = { NOTES_TOKEN = "env:NOTES_TOKEN" }   # it sees nothing else but HOME, PATH and the like
# tools = ["search", "read"]         # what steps may use at most, with - or _; empty: what each step lists
# timeout_seconds = 60.0             # for its start
#
# [mcp.calendar]
# url = "https://example.com/mcp"    # streamable HTTP
# headers = { Authorization = "Bearer env:CALENDAR_TOKEN" }
"""
"""The end of the shipped configuration: models and MCP servers as comments."""
