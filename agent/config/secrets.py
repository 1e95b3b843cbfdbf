"""The section of the configuration about secrets: the commands of `exec:NAME`, and bounds."""

from typing import Annotated

from agent.config.models import Section
from agent.core.quick_classes.quick_fields import Field
from agent.core.secret_reference import COMMAND_NAME

CommandName = Annotated[str, Field(pattern=COMMAND_NAME)]


class SecretSettings(Section):
    """Where references get secrets from: env:NAME, file:PATH, keyring:SERVICE/NAME, exec:NAME."""

    timeout_seconds: float = Field(
        default=60.0,
        ge=1,
        le=600,
        description="How long the keyring or a command may take; a person may have to confirm.",
    )
    cache_seconds: float = Field(
        default=300.0,
        ge=1,
        le=86_400,
        description="How long a secret of the keyring or of a command is kept in memory, so that a"
        " prompt does not appear for every step.",
    )
    inherit: list[Annotated[str, Field(pattern=r"^[^\"']+$")]] = Field(
        default_factory=list,
        description="Variables of the agent's own environment that the commands get, besides those"
        ' that steps\' commands get, as in ["GNUPGHOME", "DBUS_SESSION_BUS_ADDRESS"].',
    )
    exec: dict[CommandName, Annotated[list[str], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="The commands of exec:NAME references, each a list of words that is run without"
        ' a shell, as in { github = ["op", "read", "op://private/github/token"] }; or, in place of'
        " this line, as a section [secrets.exec]. What a command prints is the secret.",
    )
