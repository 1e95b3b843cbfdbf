"""The tasks of a siege: workflows with every kind of effect, and their promises.

`EXPECTED` states it for the judge: the effects of each workflow's tasks, their kinds and their order.
It is not derived from the workflows by the engine's code, since that code is under test.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_RETRY: Final = "defaults: {retry: {max_attempts: 500, delay: 50ms, factor: 1, jitter: false}}"
"""Every kill costs an attempt."""

_NOTE: Final = r'printf "%s %s\n" "$EFFECT" "$(date +%s%N)" >> "$BOOK"; sleep 0.05'

_WORKFLOWS: Final = {
    "mixed": """\
name: mixed
inputs: {ticket: {type: string}}
RETRY
steps:
  open: {http: {post: "REMOTE/plain/{{ inputs.ticket }}/open"}}
  keyed:
    depends_on: open
    http: {post: "REMOTE/keyed/{{ inputs.ticket }}/keyed", idempotent: true, json: {n: 1}}
  asked:
    depends_on: open
    http:
      post: "REMOTE/asked/{{ inputs.ticket }}/asked"
      reconcile: {get: "REMOTE/asked/{{ inputs.ticket }}/asked", applied: response.body.applied}
  note:
    depends_on: [keyed, asked]
    shell: {script: 'NOTE', env: {EFFECT: "{{ inputs.ticket }}/note", BOOK: "BOOKFILE"}}
  each:
    depends_on: open
    foreach: [a, b, c, d]
    concurrency: 2
    http: {post: "REMOTE/plain/{{ inputs.ticket }}/each.{{ parallel_index }}"}
  calls:
    depends_on: [note, each]
    python: {call: "siege_steps:two", with: {url: "REMOTE/call/{{ inputs.ticket }}/calls"}}
  child:
    depends_on: each
    workflow: {name: inner, with: {ticket: "{{ inputs.ticket }}"}}
  signed:
    depends_on: [calls, child]
    approval: {message: "Sign {{ inputs.ticket }}?"}
    http: {post: "REMOTE/plain/{{ inputs.ticket }}/signed"}
  close:
    depends_on: signed
    http: {post: "REMOTE/keyed/{{ inputs.ticket }}/close", idempotent: true}
""",
    "inner": """\
name: inner
inputs: {ticket: {type: string}}
RETRY
steps:
  first: {http: {post: "REMOTE/keyed/{{ inputs.ticket }}/first", idempotent: true}}
  second: {depends_on: first, http: {post: "REMOTE/plain/{{ inputs.ticket }}/second"}}
""",
    "refused": """\
name: refused
inputs: {ticket: {type: string}}
RETRY
steps:
  open: {http: {post: "REMOTE/keyed/{{ inputs.ticket }}/open", idempotent: true}}
  denied: {depends_on: open, http: {post: "REMOTE/final/{{ inputs.ticket }}/denied"}}
  never: {depends_on: denied, http: {post: "REMOTE/plain/{{ inputs.ticket }}/never"}}
  after:
    depends_on: denied
    run_on: failure
    http: {post: "REMOTE/plain/{{ inputs.ticket }}/after"}
""",
    "broken": """\
name: broken
inputs: {ticket: {type: string}}
RETRY
steps:
  fails:
    retry: {max_attempts: 20, delay: 50ms, factor: 1, jitter: false}
    shell: {script: 'NOTE; exit 3', env: {EFFECT: "{{ inputs.ticket }}/fails", BOOK: "BOOKFILE"}}
  after:
    depends_on: fails
    run_on: failure
    shell: {script: 'NOTE', env: {EFFECT: "{{ inputs.ticket }}/after", BOOK: "BOOKFILE"}}
""",
}

_STEPS: Final = '''\
"""Code of a user: two effects in one step, each a journaled call."""

import asyncio
import urllib.request


async def two(ctx, url):
    return [await post(ctx, url + ".1"), await post(ctx, url + ".2")]


async def post(ctx, url):
    def send():
        with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as answer:
            return answer.status

    return await ctx.call("post", {"post": url}, lambda: asyncio.to_thread(send), timeout=2)
'''


@dataclass(frozen=True)
class Effect:
    """What one step, or one part of it, does to the world."""

    kind: str
    step: str
    """The step's name in the task's document, or in its child's."""
    after: tuple[str, ...] = ()
    """The effects that must have happened before."""
    ends: str = "succeeded"
    """How the step must have ended: succeeded, failed, or skipped, which acts not at all."""


@dataclass(frozen=True)
class Workflow:
    """What a task of one workflow must come to."""

    status: str
    effects: dict[str, Effect] = field(default_factory=dict)


_EACH: Final = tuple(f"each.{number}" for number in range(4))

EXPECTED: Final = {
    "mixed": Workflow(
        "succeeded",
        {
            "open": Effect("plain", "open"),
            "keyed": Effect("keyed", "keyed", ("open",)),
            "asked": Effect("asked", "asked", ("open",)),
            "note": Effect("shell", "note", ("keyed", "asked")),
            **{
                name: Effect("plain", f"each[{number}]", ("open",))
                for number, name in enumerate(_EACH)
            },
            "calls.1": Effect("call", "calls", ("note", *_EACH)),
            "calls.2": Effect("call", "calls", ("calls.1",)),
            "first": Effect("keyed", "first", _EACH),
            "second": Effect("plain", "second", ("first",)),
            "signed": Effect("plain", "signed", ("calls.2", "second")),
            "close": Effect("keyed", "close", ("signed",)),
        },
    ),
    "refused": Workflow(
        "failed",
        {
            "open": Effect("keyed", "open"),
            "denied": Effect("final", "denied", ("open",), ends="failed"),
            "never": Effect("plain", "never", ends="skipped"),
            "after": Effect("plain", "after", ("open",)),
        },
    ),
    "broken": Workflow(
        "failed",
        {
            "fails": Effect("shell", "fails", ends="failed"),
            "after": Effect("shell", "after", ("fails",)),
        },
    ),
}
"""The workflows that a siege starts; `inner` is started by `mixed`, and its effects are listed there."""


def write_workflows(directory: Path, remote: str, book: Path) -> None:
    """Write the workflow files, and the module of steps beside them."""
    directory.mkdir()
    for name, text in _WORKFLOWS.items():
        for word, value in (
            ("RETRY", _RETRY), ("NOTE", _NOTE), ("REMOTE", remote), ("BOOKFILE", str(book)),
        ):  # fmt: skip
            text = text.replace(word, value)
        (directory / f"{name}.yaml").write_text(text, encoding="utf-8")
    (directory / "siege_steps.py").write_text(_STEPS, encoding="utf-8")
