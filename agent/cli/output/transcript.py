"""Calls of a step as text: the lines of each, and one line while the task runs."""

from typing import Any

from agent.cli.output import terminal

_MAX_SHOWN = 160


def used(usage: dict[str, Any]) -> str:
    """Return model usage as text."""
    parts = [_count(usage["turns"], "model call", "model calls")]
    if usage["tools"]:
        parts.append(_count(usage["tools"], "tool call", "tool calls"))
    parts += [f"{usage['tokens_in']} tokens in", f"{usage['tokens_out']} out"]
    return ", ".join([*parts, f"${usage['usd']:.6f}"])


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def origin(call: dict[str, Any]) -> str:
    """Return the model, and the ids that identify the call at the provider."""
    parts = [f"model {call['model']}"]
    if call["request_id"]:
        parts.append(f"request {call['request_id']}")
    if call["stop_reason"]:
        parts.append(f"stopped: {call['stop_reason']}")
    return ", ".join(parts)


def call_line(call: dict[str, Any]) -> str:
    """Return one line about a call, for a task that runs."""
    line = f"{call['step']} {headline(call)}"
    if call["status"] == "unknown":
        return f"{line} …"
    result = " ".join(_tool_uses(call) or response_lines(call))
    return f"{line}: {terminal.one_line(result, _MAX_SHOWN)}" if result else line


def headline(call: dict[str, Any]) -> str:
    """Return one line about a call: its number, its action and its cost."""
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


def request_lines(call: dict[str, Any]) -> list[str]:
    """Return the request, without the parts that the headline shows."""
    request = call["request"]
    if not isinstance(request, dict):
        return [] if request is None else [_written(request)]
    if "arguments" in request:
        return [f"{request.get('tool')} {_written(request['arguments'])}"]
    shown = {key: value for key, value in request.items() if key != "turn"}
    return [f"{key}: {_written(value)}" for key, value in shown.items()]


def response_lines(call: dict[str, Any]) -> list[str]:
    """Return the answer of a call, or its error."""
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
    remark = ", found in the sent mail" if response.get("reconciled") else ""
    accepted = ", ".join(response.get("accepted", ()))
    lines = [f"→ sent to {accepted} as {response.get('message_id')}{size}{remark}"]
    return lines + [
        f"→ {refusal['address']} was refused: {refusal['reply']}"
        for refusal in response.get("refused", ())
    ]


def _tool_uses(call: dict[str, Any]) -> list[str]:
    """Return the tools that a model calls."""
    response = call["response"]
    uses = response.get("tool_uses", ()) if isinstance(response, dict) else ()
    return [f"→ calls {use['name']} {_written(use['arguments'])}" for use in uses]


def _written(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
