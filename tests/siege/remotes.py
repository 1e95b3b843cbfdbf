"""The remote services of a siege, as a process of their own, and the ledger of what reached them.

    python tests/siege/remotes.py DIRECTORY SEED

Every request is written to `DIRECTORY/ledger` and synced before it is answered. Then the remote
answers as chance wants: well, with a refusal, with an error, late, or by closing the connection,
having acted or not. Chance depends on the seed, the address and how often it was asked.

A remote's address is /KIND/TICKET/STEP. The kinds: `plain` acts on every request that it accepts,
`keyed` once for each Idempotency-Key, `asked` can be asked by GET whether it acted, `final` always
answers 401 and never acts.
"""

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

STALL_SECONDS: Final = 4.0
"""Longer than the agents' call timeout: they give up before the answer comes."""
PATIENT_AFTER: Final = 4
"""From this request for one effect on, the remote answers well: every siege ends."""

FATES: Final = {
    "plain": [
        (62, True, "200"), (10, False, "429"), (7, True, "cut"), (6, False, "cut"),
        (5, True, "500"), (5, False, "500"), (3, True, "stall"), (2, False, "stall"),
    ],
    "keyed": [
        (55, True, "200"), (8, False, "429"), (15, True, "cut"), (6, False, "cut"),
        (8, True, "500"), (5, False, "500"), (3, True, "stall"),
    ],
    "asked": [
        (55, True, "200"), (5, False, "429"), (15, True, "cut"), (10, False, "cut"),
        (10, True, "500"), (5, False, "500"),
    ],
    "call": [(75, True, "200"), (10, True, "cut"), (8, False, "cut"), (7, True, "500")],
    "final": [(1, False, "401")],
}  # fmt: skip
"""What may become of a request: how likely, whether the remote acts, and how it answers."""


class Ledger:
    """What reached the remotes, in memory and in a file."""

    def __init__(self, path: Path, seed: str) -> None:
        self._file = path.open("ab", buffering=0)
        self._seed = seed
        self._changed = threading.Condition()
        self._count = 0
        self._sent: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._applied: Counter[str] = Counter()
        self._keys: set[tuple[str, str]] = set()

    def take(self, kind: str, effect: str, key: str | None) -> str:
        """Decide what becomes of a request, write it down, and return how to answer it."""
        with self._changed:
            self._sent[effect] += 1
            if kind == "keyed" and (effect, str(key)) in self._keys:
                acts, answer = False, "replayed"
            elif kind != "final" and self._sent[effect] >= PATIENT_AFTER:
                acts, answer = True, "200"
            else:
                acts, answer = self._fate(kind, effect)
            if acts:
                self._applied[effect] += 1
                self._keys.add((effect, str(key)))
            self._write(what="sent", kind=kind, effect=effect, key=key, acted=acts, answer=answer)
            return answer

    def question(self, effect: str) -> bool | None:
        """Return whether an effect happened; None when the remote cannot tell at the moment."""
        with self._changed:
            self._asked[effect] += 1
            chance = random.Random(f"{self._seed} asked {effect} {self._asked[effect]}")
            said = self._applied[effect] > 0 if chance.random() > 0.15 else None
            self._write(what="asked", effect=effect, said=said)
            return said

    def truth(self, effect: str) -> dict[str, int]:
        """Return what is known of an effect, for the person."""
        with self._changed:
            return {"sent": self._sent[effect], "applied": self._applied[effect]}

    def wait_for_next(self, seconds: float) -> int:
        """Return once another request has been written down, or after a time."""
        with self._changed:
            before = self._count
            self._changed.wait_for(lambda: self._count > before, seconds)
            return self._count

    def _fate(self, kind: str, effect: str) -> tuple[bool, str]:
        fates = FATES[kind]
        chance = random.Random(f"{self._seed} {kind} {effect} {self._sent[effect]}")
        (_, acts, answer) = chance.choices(fates, [weight for weight, _, _ in fates])[0]
        return acts, answer

    def _write(self, **entry: Any) -> None:
        entry["at"] = time.time_ns()
        self._file.write(json.dumps(entry).encode() + b"\n")
        os.fsync(self._file.fileno())
        self._count += 1
        self._changed.notify_all()


class Remote(BaseHTTPRequestHandler):
    """Answers requests of agents, and of the siege itself."""

    ledger: Ledger
    timeout = 60

    def do_POST(self) -> None:
        """Take a request to act."""
        length = int(self.headers.get("Content-Length") or 0)
        if len(self.rfile.read(length)) < length:
            # The sender was killed in the middle of its request, which therefore never came.
            return
        kind, effect = self._address()
        answer = self.ledger.take(kind, effect, self.headers.get("Idempotency-Key"))
        # The moment in which other engines repeat what they did: it acted, and has not answered.
        time.sleep(0.02)
        self.close_connection = True
        if answer == "cut":
            return
        if answer == "stall":
            time.sleep(STALL_SECONDS)
            return
        self._send(200 if answer == "replayed" else int(answer), {"effect": effect})

    def do_GET(self) -> None:
        """Answer whether a remote acted, and what the siege asks."""
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/truth":
            self._send(200, self.ledger.truth(query["effect"]))
        elif parts.path == "/next":
            self._send(200, {"count": self.ledger.wait_for_next(float(query["seconds"]))})
        else:
            said = self.ledger.question(self._address()[1])
            self._send(503 if said is None else 200, {"applied": said})

    def _address(self) -> tuple[str, str]:
        _, kind, ticket, step = urlsplit(self.path).path.split("/")
        return kind, f"{ticket}/{step}"

    def _send(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Keep quiet about clients that were killed while they were served."""


def serve(directory: Path, seed: str) -> None:
    """Serve until killed; the port is in a file once it is open."""
    Remote.ledger = Ledger(directory / "ledger", seed)
    with _Server(("127.0.0.1", 0), Remote) as server:
        unfinished = directory / "port.new"
        unfinished.write_text(str(server.server_port))
        unfinished.rename(directory / "port")
        server.serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
