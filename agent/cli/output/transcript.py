"""A step's calls for a person: an agent's conversation in full, or as lines while it goes on."""

from typing import Any

from agent.cli.output import terminal
from agent.cli.output.terminal import print_line

_MOST_SHOWN = 160


def print_transcript(document: dict[str, Any]) -> None:
    """Print all that a step asked for and was given."""
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
        for line in _question(call) + _answer(call):
            print_line(line)
    if not document["calls"]:
        print_line("it has made no calls")
    elif document["usage"]["turns"]:
        print_line("")
        print_line(f"in all: {used(document['usage'])}")


def used(usage: dict[str, Any]) -> str:
    """Say what was used of models."""
    parts = [_count(usage["turns"], "call of a model", "calls of models")]
    if usage["tools"]:
        parts.append(_count(usage["tools"], "use of a tool", "uses of tools"))
    parts += [f"{usage['tokens_in']} tokens in", f"{usage['tokens_out']} out"]
    return ", ".join([*parts, f"${usage['usd']:.6f}"])


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _origin(call: dict[str, Any]) -> str:
    """Say who was asked, and what helps to find the call at the provider."""
    parts = [f"asked {call['model']}"]
    if call["request_id"]:
        parts.append(f"request {call['request_id']}")
    if call["stop_reason"]:
        parts.append(f"stopped: {call['stop_reason']}")
    return ", ".join(parts)


def call_line(call: dict[str, Any]) -> str:
    """Return one line on a call, for a view of a loop as it goes on."""
    line = f"{call['step']} {_headline(call)}"
    if call["status"] == "unknown":
        return f"{line} …"
    told = " ".join(_wishes(call) or _answer(call))
    return f"{line}: {terminal.one_line(told, _MOST_SHOWN)}" if told else line


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


def _question(call: dict[str, Any]) -> list[str]:
    """Return what was asked, without what the headline says of it."""
    request = call["request"]
    if not isinstance(request, dict):
        return [] if request is None else [_written(request)]
    if "arguments" in request:
        return [f"{request.get('tool')} {_written(request['arguments'])}"]
    shown = {key: value for key, value in request.items() if key != "turn"}
    return [f"{key}: {_written(value)}" for key, value in shown.items()]


def _answer(call: dict[str, Any]) -> list[str]:
    if call["error"]:
        return [f"→ {call['error'].get('message')}"]
    response = call["response"]
    if call["status"] != "succeeded":
        return []
    if isinstance(response, dict) and "refused" in response:
        return [f"→ refused: {response['refused']}"]
    if isinstance(response, dict) and isinstance(response.get("text"), str):
        texts = [f"→ {response['text']}"] if response["text"] else []
        return texts + _wishes(call)
    return [] if response is None else [f"→ {_written(response)}"]


def _wishes(call: dict[str, Any]) -> list[str]:
    """Return which tools a model asked for."""
    response = call["response"]
    uses = response.get("tool_uses", ()) if isinstance(response, dict) else ()
    return [f"→ asks for {use['name']} {_written(use['arguments'])}" for use in uses]


def _written(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
