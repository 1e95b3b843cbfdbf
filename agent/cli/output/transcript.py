"""The calls of a step as text: in full, or one line each while the task runs."""

from typing import Any

from agent.cli.output import terminal
from agent.cli.output.terminal import print_line

_MAX_SHOWN = 160


def print_transcript(document: dict[str, Any]) -> None:
    """Print every call of a step, with request and response."""
    status = document["status"]
    title = f"{terminal.marked(status)}: step {document['step']} ({document['kind']})"
    if document["attempt"] > 1:
        title += f", attempt {document['attempt']}"
    print_line(f"{title} of task {terminal.short(document['task'])}", terminal.style_of(status))
    for call in document["calls"]:
        print_line("")
        print_line(_headline(call), "bold" if call["status"] == "succeeded" else "yellow")
        if call["model"]:
            print_line(_origin(call))
        for line in _request(call) + _response(call):
            print_line(line)
    if not document["calls"]:
        print_line("no calls yet")
    elif document["usage"]["turns"]:
        print_line("")
        print_line(f"total: {used(document['usage'])}")


def used(usage: dict[str, Any]) -> str:
    """Return model usage as text."""
    parts = [_count(usage["turns"], "model call", "model calls")]
    if usage["tools"]:
        parts.append(_count(usage["tools"], "tool call", "tool calls"))
    parts += [f"{usage['tokens_in']} tokens in", f"{usage['tokens_out']} out"]
    return ", ".join([*parts, f"${usage['usd']:.6f}"])


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _origin(call: dict[str, Any]) -> str:
    """Return the model, and the ids that identify the call at the provider."""
    parts = [f"model {call['model']}"]
    if call["request_id"]:
        parts.append(f"request {call['request_id']}")
    if call["stop_reason"]:
        parts.append(f"stopped: {call['stop_reason']}")
    return ", ".join(parts)


def call_line(call: dict[str, Any]) -> str:
    """Return one line about a call, for a task that runs."""
    line = f"{call['step']} {_headline(call)}"
    if call["status"] == "unknown":
        return f"{line} …"
    result = " ".join(_tool_uses(call) or _response(call))
    return f"{line}: {terminal.one_line(result, _MAX_SHOWN)}" if result else line


def _headline(call: dict[str, Any]) -> str:
    request = call["request"] if isinstance(call["request"], dict) else {}
    parts = [f"#{call['number']} {call['action']}"]
    if call["action"] == "model" and "turn" in request:
        parts[0] += f" turn {request['turn']}"
    if call["attempt"] > 1:
        parts.append(f"attempt {call['attempt']}")
    if call["tokens_out"] is not None:
        parts.append(f"{call['tokens_in']} tokens in, {call['tokens_out']} out")
    if call["usd"] is not None:
        parts.append(f"${call['usd']:.6f}")
    if call["latency_ms"] is not None:
        parts.append(f"{call['latency_ms']} ms")
    if call["status"] != "succeeded":
        parts.append(call["status"])
    return ", ".join(parts)


def _request(call: dict[str, Any]) -> list[str]:
    """Return the request, without what the headline shows."""
    request = call["request"]
    if not isinstance(request, dict):
        return [] if request is None else [_written(request)]
    if "arguments" in request:
        return [f"{request.get('tool')} {_written(request['arguments'])}"]
    shown = {key: value for key, value in request.items() if key != "turn"}
    return [f"{key}: {_written(value)}" for key, value in shown.items()]


def _response(call: dict[str, Any]) -> list[str]:
    if call["error"]:
        return [f"→ {call['error'].get('message')}"]
    response = call["response"]
    if call["status"] != "succeeded":
        return []
    if isinstance(response, dict) and call["action"] == "mail.send":
        return _delivery(response)
    if isinstance(response, dict) and "refused" in response:
        return [f"→ refused: {response['refused']}"]
    if isinstance(response, dict) and isinstance(response.get("text"), str):
        texts = [f"→ {response['text']}"] if response["text"] else []
        return texts + _tool_uses(call)
    return [] if response is None else [f"→ {_written(response)}"]


def _delivery(response: dict[str, Any]) -> list[str]:
    """Return who gets a mail, and who does not."""
    size = f", {response['size']:,} bytes" if response.get("size") is not None else ""
    found = ", found in the sent mail" if response.get("reconciled") else ""
    accepted = ", ".join(response.get("accepted", ()))
    lines = [f"→ sent to {accepted} as {response.get('message_id')}{size}{found}"]
    return lines + [
        f"→ {each['address']} was refused: {each['reply']}" for each in response.get("refused", ())
    ]


def _tool_uses(call: dict[str, Any]) -> list[str]:
    """Return the tools that a model calls."""
    response = call["response"]
    uses = response.get("tool_uses", ()) if isinstance(response, dict) else ()
    return [f"→ calls {use['name']} {_written(use['arguments'])}" for use in uses]


def _written(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
