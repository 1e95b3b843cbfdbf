"""An MCP server by hand, of the older protocol unless `MODERN` names another: it starts at once, and can die or hang in a call.

What its tools did is appended to the file that the environment names, so that a test can count.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SPECIAL: dict[str, Any] = json.loads(os.environ.get("SPECIAL", "{}"))
"""Further tools by name: the description of each, and under `gives` what its result has, or under `instead` all of it."""
TOOLS = ["double", "die", "hang", "ask", *(["more"] if os.environ.get("MORE") else [])]


CACHED = {"ttlMs": 0, "cacheScope": "private"} if os.environ.get("MODERN") else {}
SIZE = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}


def ask(params: dict[str, Any]) -> Any:
    """Ask the client's person, in the middle of a call, and return what it answers."""
    message = {"jsonrpc": "2.0", "id": "question", "method": "elicitation/create", "params": params}
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        answer = json.loads(line)
        if answer.get("id") == "question":
            return answer.get("result")
    return None


def call(name: str, arguments: dict[str, Any]) -> str:
    """Use a tool."""
    with Path(os.environ["DID"]).open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")
    if name == "die":
        os._exit(3)
    if name == "ask":
        answer = ask(
            {
                "message": "Which size?",
                "requestedSchema": json.loads(os.environ.get("ASKS", "null")) or SIZE,
            }
        )
        return json.dumps(answer)
    if name == "hang":
        Path(f"{os.environ['DID']}.pid").write_text(str(os.getpid()), encoding="utf-8")
        time.sleep(600)
    return str(arguments["n"] * 2)


def answer(method: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; None for one that is not known."""
    match method:
        case "initialize":
            info = {"name": "plain", "version": "1"}
            version = given["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "server/discover" if os.environ.get("MODERN"):
            # As all results here, without `resultType`.
            versions = [os.environ["MODERN"]]
            return {"supportedVersions": versions, "capabilities": {"tools": {}}, **CACHED}
        case "tools/list":
            described = {"description": "odd\0", "inputSchema": NUMBERS}
            special = [{"name": name, **described, **of} for name, of in SPECIAL.items()]
            return {"tools": [*({"name": name, **described} for name in TOOLS), *special], **CACHED}
        case "tools/call" if "instead" in SPECIAL.get(given["name"], {}):
            instead: dict[str, Any] = SPECIAL[given["name"]]["instead"]
            return instead
        case "tools/call" if given["name"] in SPECIAL:
            text = json.dumps(given["arguments"])
            result = {"content": [{"type": "text", "text": text}]}
            return {**result, **SPECIAL[given["name"]].get("gives", {})}
        case "tools/call":
            text = call(given["name"], given["arguments"])
            return {"content": [{"type": "text", "text": text}]}
        case _:
            return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or message["method"] == os.environ.get("SILENT_ON"):
        continue
    result = answer(message["method"], message.get("params", {}))
    verdict = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **verdict}) + "\n")
    sys.stdout.flush()
