"""The question to a person about an effect whose result was never recorded."""

import json
import re
import shlex
from typing import Final

from agent.core.clock import to_iso
from agent.steps.types.outcome import Json

_MAX_SUMMARY: Final = 100


_UNKNOWN_END: Final = re.compile(r"; whether it took effect is unknown$")


def what_happened(error: dict[str, Json] | None) -> str | None:
    """Describe the known facts of an effect whose result is unknown, as in "was answered with status 500".

    None where its process died: then nothing is known.
    """
    if not isinstance(error, dict) or error.get("class") != "unknown":
        return None
    text = _UNKNOWN_END.sub("", str(error.get("message") or ""))
    answered = text.rfind("was answered with ")
    return text[answered:] if answered >= 0 else text or None


def unknown_question(
    step: str,
    effect: str,
    started_at: int | None,
    *,
    has_changed: bool,
    happened: str | None = None,
) -> str:
    """Return the question about an effect of a step; the whole request is shown beside it.

    `happened` has the known facts (`what_happened`).
    """
    time = f" started at {_minute(started_at)}" if started_at is not None else " started"
    result = "its result was never recorded" if happened is None else f"it {happened}"
    if happened is not None and not happened.startswith("was "):
        result = happened
    text = f"`{effect}` of step {step}{time}; {result}. Did it happen?"
    if has_changed:
        text += " The step would now send another request: retry sends that one."
    return text


def effect_summary(action: str, request: Json) -> str:
    """Return a call in a few words: its command, its address, or its function.

    `request` is the recorded one, without secrets. A large one is recorded elsewhere: then the call
    is named by its action.
    """
    return _shorten(_summary(action, request) or action)


def _summary(action: str, request: Json) -> str | None:
    if not isinstance(request, dict):
        return None
    kind = action.partition("#")[0]
    if kind == "shell" and isinstance(request.get("argv"), list):
        return shlex.join(map(str, request["argv"]))
    if kind == "shell" and "script" in request:
        return _first_line(str(request["script"]))
    if kind == "python" and "call" in request:
        return str(request["call"])
    if kind.startswith("http.") and (method := kind.removeprefix("http.")) in request:
        return f"{method.upper()} {request[method]}"
    if kind == "mail.send" and isinstance(request.get("to"), list):
        return f"mail to {', '.join(map(str, request['to']))}: {request.get('subject', '')}"
    if kind.startswith("tool.") and "arguments" in request:
        arguments = json.dumps(request["arguments"], ensure_ascii=False)
        return f"{kind.removeprefix('tool.')} {arguments}"
    return None


def _first_line(script: str) -> str:
    lines = [line.strip() for line in script.splitlines() if line.strip()]
    return "" if not lines else lines[0] if len(lines) == 1 else f"{lines[0]} …"


def _shorten(text: str) -> str:
    # Backticks would end the quotation.
    text = " ".join(text.replace("`", "'").split())
    return text if len(text) <= _MAX_SUMMARY else text[: _MAX_SUMMARY - 1] + "…"


def _minute(instant_us: int) -> str:
    date, _, time = (to_iso(instant_us) or "").partition("T")
    return f"{date} {time[:5]} UTC"
