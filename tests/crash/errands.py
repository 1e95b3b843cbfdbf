"""The tasks that campaigns run: every kind of effect that an agent may be killed in."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from agent.workflows.compile.compiler import compile_text
from agent.workflows.graph import Graph

# Every kill counts as an attempt of what was running.
_WORKFLOW = """\
name: errand
defaults: {retry: {max_attempts: 1000, delay: 0s, jitter: false}}
steps:
  first:
    http: {post: "WORLD/{{ task.id }}/first"}
  between:
    depends_on: [first]
    python: {call: "tests.crash.remote_steps:pass_on"}
  many:
    depends_on: [first]
    parallel: 3
    http: {post: "WORLD/{{ task.id }}/many{{ parallel_index }}"}
  nap:
    depends_on: [between]
    wait: 50ms
  told:
    depends_on: [nap]
    python: {call: "tests.crash.remote_steps:post", with: {url: "WORLD/{{ task.id }}/told"}}
  keyed:
    depends_on: [many]
    http: {post: "WORLD/{{ task.id }}/keyed", idempotent: true}
  said:
    depends_on: [keyed]
    shell: {argv: [bash, -c, "SCRIPT", post, "/{{ task.id }}/said"]}
  inner:
    depends_on: [told]
    workflow: {name: inner}
  last:
    depends_on: [said, inner]
    approval: {message: "Send the last one?"}
    http: {post: "WORLD/{{ task.id }}/last"}
"""
_INNER = """\
name: inner
defaults: {retry: {max_attempts: 1000, delay: 0s, jitter: false}}
steps:
  inner:
    http: {post: "WORLD/{{ task.id }}/inner"}
"""
_GOLDEN = """\
name: golden
defaults: {retry: {max_attempts: 1000, delay: 0s, jitter: false}}
steps:
  first:
    http: {post: "WORLD/{{ task.id }}/first"}
  told:
    depends_on: [first]
    python: {call: "tests.crash.remote_steps:post", with: {url: "WORLD/{{ task.id }}/told"}}
  said:
    depends_on: [first]
    shell: {argv: [bash, -c, "SCRIPT", post, "/{{ task.id }}/said"]}
  last:
    depends_on: [told, said]
    approval: {message: "Send the last one?"}
    http: {post: "WORLD/{{ task.id }}/last"}
"""
# A request without a client: a program started for it would cost more than the rest of the task.
_SCRIPT = (
    "exec 3<>/dev/tcp/127.0.0.1/PORT;"
    r" printf 'POST %s HTTP/1.0\\r\\nContent-Length: 0\\r\\n\\r\\n' $1 >&3; cat <&3"
)

ONCE = ("first", "many0", "many1", "many2", "told", "said", "last")
KEYED = ("keyed",)
INNER = ("inner",)
GOLDEN = ("first", "told", "said", "last")


def errand(world: str) -> Graph:
    """Return the task, for a world at an address."""
    return _compiled(_WORKFLOW, world)


def inner(world: str) -> Graph:
    """Return the task that one of its steps starts."""
    return _compiled(_INNER, world)


def golden(world: str) -> Graph:
    """Return a short task, whose every commit gets a fault."""
    return _compiled(_GOLDEN, world)


def _compiled(text: str, world: str) -> Graph:
    text = text.replace("SCRIPT", _SCRIPT).replace("WORLD", world)
    return compile_text(text.replace("PORT", world.rpartition(":")[2]), "errand.yaml")


def paths(task_ids: Iterable[str], names: Iterable[str]) -> set[str]:
    """Return where tasks have their effects of these names."""
    names = list(names)
    return {f"/{task_id}/{name}" for task_id in task_ids for name in names}


def misdeeds(
    effects: Iterable[tuple[str, str]],
    once: AbstractSet[str],
    keyed: AbstractSet[str] = frozenset(),
) -> Iterator[str]:
    """Compare the effects that the world has seen with those that ended tasks must have caused."""
    counts: Counter[str] = Counter()
    keys: dict[str, set[str]] = defaultdict(set)
    for path, key in effects:
        counts[path] += 1
        keys[path].add(key)
    for path in sorted(once):
        if counts[path] != 1:
            yield f"{path} happened {counts[path]} times"
    for path in sorted(keyed):
        # A remote that honours the key has done it once, however often it was asked.
        if len(keys[path]) != 1:
            yield f"{path} was asked for under {len(keys[path])} keys"
    for path in sorted(counts.keys() - once - keyed):
        yield f"{path} happened, and no task asks for it"
