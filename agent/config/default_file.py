"""The text of the default configuration, made from the declarations in `settings`."""

from agent.config.mail import MAIL_TEXT
from agent.config.models import MODELS_TEXT
from agent.config.settings import sections


def default_text() -> str:
    """Return the commented default configuration that `agent init` writes."""
    blocks = [
        "# The agent's configuration, with its defaults. A variable of the environment overrides\n"
        "# a value here: AGENT_ENGINE__SLOTS=10 sets slots in [engine]. A list is written a,b or as\n"
        "# JSON.\n"
    ]
    for name, section in sections().items():
        lines = [f"# {section.__doc__}", f"[{name}]"]
        for key, field in section.model_fields.items():
            lines += _comment(field.description or "")
            lines.append(f"{key} = {_toml(field.get_default(call_default_factory=True))}")
        blocks.append("\n".join(lines) + "\n")
    return "\n".join([*blocks, MODELS_TEXT]) + MAIL_TEXT


def _comment(text: str, width: int = 98) -> list[str]:
    lines = ["#"]
    for word in text.split():
        if len(lines[-1]) + 1 + len(word) > width:
            lines.append("#")
        lines[-1] += f" {word}"
    return lines


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case list():
            return "[" + ", ".join(_toml(item) for item in value) + "]"
        case _:
            return str(value)
