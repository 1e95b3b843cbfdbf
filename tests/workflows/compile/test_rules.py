"""Every rule of the language: a violation is reported with its line, its key and what would be right."""

import pytest

from agent.workflows.compile.compiler import check_text
from tests.support.sample_kinds import KINDS

S = "name: x\nsteps:\n  a: {nap: }\n"
BAD: list[tuple[str, int | None, str, str]] = [
    # text, line, key, words
    ("", None, "", "the file is empty"),
    ("- a", 1, "", "a workflow is a mapping"),
    ("just text", 1, "", "a workflow is a mapping"),
    ("steps: {a: {nap: }}", 1, "name", "'name' is missing"),
    ("name: x", 1, "steps", "'steps' is missing"),
    ("name: x\nsteps: {}", 2, "steps", "must not be empty"),
    ("name: x\nsteps: [a]", 2, "steps", "write each step under its name"),
    ("name: x\nsteps:", 2, "steps", "must be a mapping"),
    ("name: Big Name\n" + S[8:], 1, "name", "did you mean 'big-name'?"),
    ("name: 5\n" + S[8:], 1, "name", "put it in quotes"),
    ("name: " + "x" * 101 + "\n" + S[8:], 1, "name", "too long"),
    (S + "step: 5\n", 4, "step", "did you mean 'steps'?"),
    (S + "tasks: {}\n", 4, "tasks", "did you mean 'steps'?"),
    (S + "whatever: 1\n", 4, "whatever", "there are name, description"),
    (S + "max_parallel: 0\n", 4, "max_parallel", "at least 1"),
    (S + "max_parallel: -1\n", 4, "max_parallel", "at least 1"),
    (S + "max_parallel: true\n", 4, "max_parallel", "a whole number, and is true"),
    (S + "max_parallel: 1.5\n", 4, "max_parallel", "a whole number"),
    (S + "max_parallel: '2'\n", 4, "max_parallel", "a whole number"),
    (S + "max_parallel: 99999999\n", 4, "max_parallel", "at most 20,000"),
    (S + "fail_fast: maybe\n", 4, "fail_fast", "true or false"),
    (S + "priority: hihg\n", 4, "priority", "did you mean 'high'?"),
    (S + "timeout: 5\n", 4, "timeout", "such as 5s"),
    (S + "timeout: 0s\n", 4, "timeout", "longer than zero"),
    (S + "timeout: true\n", 4, "timeout", "a duration is text"),
    (S + "timeout: 1h\nbudget: {time: 1h}\n", 4, "timeout", "give one of them"),
    (S + "budget: {tokens: 0}\n", 4, "budget.tokens", "at least 1"),
    (S + "budget: {usd: -1}\n", 4, "budget.usd", "greater than 0"),
    (S + "budget: {token: 5}\n", 4, "budget.token", "did you mean 'tokens'?"),
    (S + "budget: {on_exhausted: stop}\n", 4, "budget.on_exhausted", "not one of pause, fail"),
    (S + "defaults: {timeout: soon}\n", 4, "defaults.timeout", "is not a duration"),
    (S + "defaults: {retry: {max_attempts: true}}\n", 4, "defaults.retry.max_attempts", "whole"),
    (S + "defaults: {run_on: always}\n", 4, "defaults.run_on", "there are timeout, retry"),
    (S + "inputs: [a]\n", 4, "inputs", "write each input under its name"),
    (S + "inputs: {a-b: string}\n", 4, "inputs.a-b", "is not a name"),
    (S + "inputs: {a: {type: strin}}\n", 4, "inputs.a.type", "did you mean 'string'?"),
    (S + "inputs: {a: {typ: string}}\n", 4, "inputs.a.typ", "did you mean 'type'?"),
    (S + "inputs: {a: {type: integer, default: x}}\n", 4, "inputs.a", "default must be a whole"),
    (S + "inputs: {a: {type: integer, default: true}}\n", 4, "inputs.a", "default must be a whole"),
    (S + "inputs: {a: {default: 1, required: true}}\n", 4, "inputs.a", "never required"),
    (S + "inputs: {a: {choices: []}}\n", 4, "inputs.a.choices", "must not be empty"),
    (S + "inputs: {a: {choices: [b], default: c}}\n", 4, "inputs.a", "one of \"b\""),
    (S + "output: '{{ steps.b.output }}'\n", 4, "output", "no step 'b'"),
    (S + "output: {x: ['{{ oops }}']}\n", 4, "output.x[0]", "there is no 'oops'"),
    (S + "output: '{{ task.attempt }}'\n", 4, "output", "a task has no 'attempt'"),
    (S + "  b: {do: '{{ task.attempt }} {{ task.version }}'}\n", None, "", ""),
    (S + "output: '{{ item }}'\n", 4, "output", "only inside the items"),
    ("name: x\nsteps: {A: {nap: }}", 2, "steps.A", "is not a name"),
    ("name: x\nsteps: {a-b: {nap: }}", 2, "steps.a-b", "did you mean 'a_b'?"),
    ("name: x\nsteps: {9a: {nap: }}", 2, "steps.9a", "is not a name"),
    ("name: x\nsteps:\n  a: {nap: }\n  a: {nap: }\n", 4, "steps.a", "already set in line 3"),
    (S + "  b: 5\n", 4, "steps.b", "a step is a mapping"),
    (S + "  b: {}\n", 4, "steps.b", "the step has no kind; there are do, nap"),
    (S + "  b: {depends_on: a}\n", 4, "steps.b", "the step has no kind"),
    (S + "  b: {dos: {what: x}}\n", 4, "steps.b.dos", "no kind of step 'dos'; did you mean 'do'?"),
    (S + "  b: {llm: {prompt: x}}\n", 4, "steps.b.llm", "not available yet"),
    (S + "  b: {approval: {message: x}}\n", 4, "steps.b.approval", "not available yet"),
    (S + "  b: {do: x, approval: {message: x}}\n", 4, "steps.b.approval", "not available yet"),
    (S + "  b: {do: x, nap: }\n", 4, "steps.b.nap", "has 'do' and 'nap'"),
    (S + "  b: {nap: , dpends_on: a}\n", 4, "steps.b.dpends_on", "did you mean 'depends_on'?"),
    (S + "  b: {nap: , needs: a}\n", 4, "steps.b.needs", "did you mean 'depends_on'?"),
    (S + "  b: {nap: , retries: 3}\n", 4, "steps.b.retries", "did you mean 'retry'?"),
    (S + "  b: {nap: , when: x}\n", 4, "steps.b.when", "did you mean 'if'?"),
    (S + "  b: {nap: , with_items: [1]}\n", 4, "steps.b.with_items", "did you mean 'foreach'?"),
    (S + "  b: {run: echo}\n", 4, "steps.b.run", "did you mean 'run_on'?"),
    (S + "  b: {do: {what: x, raw: 'say {{ inputs.n }}'}}\n", 4, "steps.b.do.raw",
     "nothing is rendered inside raw, not even {{ inputs.n }}"),
    (S + "  b: {do: {what: x, raw: '{{ item }}'}, foreach: [1]}\n", 4, "steps.b.do.raw", "rendered"),
    (S + "  b: {do: {what: x, raw: '{{ .Names }} {{ items }} {{ 1 }}'}}\n", None, "", ""),
    (S + "  b: {do: {what: x, test: 'reply.ok =='}}\n", 4, "steps.b.do.test", "cannot be read"),
    (S + "  b: {do: {what: x, test: '{{ reply.ok }}'}}\n", 4, "steps.b.do.test", "without braces"),
    (S + "  b: {do: {what: x, test: rply.ok}}\n", 4, "steps.b.do.test", "there is no 'rply'"),
    (S + "  b: {do: {what: x, test: reply.ok == steps.a.output}}\n", 4, "steps.b.do.test",
     "not upstream"),
    (S + "  b: {do: {what: x, test: reply.ok}}\n", None, "", ""),
    (S + "  b: {nap: , depends_on: b}\n  c: {do: '{{ steps.a.output }}'}\n", 5,
     "steps.c.do.what", "not upstream of 'c'"),
    (S + "  b: {do: {}}\n", 4, "steps.b.do.what", "'what' is missing"),
    (S + "  b: {do: {what: x, cuont: 2}}\n", 4, "steps.b.do.cuont", "did you mean 'count'?"),
    (S + "  b: {do: {what: x, count: 0}}\n", 4, "steps.b.do.count", "at least 1"),
    (S + "  b: {do: {what: x, count: true}}\n", 4, "steps.b.do.count", "whole number, and is true"),
    (S + "  b: {do: [x]}\n", 4, "steps.b.do.what", "must be text"),
    (S + "  b: {do: {what: x, many: {y: 1}}}\n", 4, "steps.b.do.many", "must be a list"),
    (S + "  b: {nap: 5}\n", 4, "steps.b.nap", "takes a mapping"),
    (S + "  b: {nap: , depends_on: [aa]}\n", 4, "steps.b.depends_on[0]", "did you mean 'a'?"),
    (S + "  b: {nap: , depends_on: zzz}\n", 4, "steps.b.depends_on[0]", "there is no step 'zzz'"),
    (S + "  b: {nap: , depends_on: [a, a]}\n", 4, "steps.b.depends_on[1]", "named twice"),
    (S + "  b: {nap: , depends_on: 5}\n", 4, "steps.b.depends_on", "must be text"),
    (S + "  b: {nap: , depends_on: b}\n", 4, "steps.b.depends_on", "in a cycle: b -> b"),
    (S + "  b: {nap: , run_on: allways}\n", 4, "steps.b.run_on", "did you mean 'always'?"),
    (S + "  b: {nap: , on_failure: stop}\n", 4, "steps.b.on_failure", "must be run, and is"),
    (S + "  b: {nap: , on_failure: run, run_on: success}\n", 4, "steps.b.on_failure", "give one"),
    (S + "  b: {nap: , on_unknown: guess}\n", 4, "steps.b.on_unknown", "retry, reconcile, ask, fail"),
    (S + "  b: {nap: , if: }\n", 4, "steps.b.if", "takes an expression"),
    (S + "  b: {nap: , if: 5}\n", 4, "steps.b.if", "takes an expression"),
    (S + "  b: {nap: , if: 'a =='}\n", 4, "steps.b.if", "cannot be read"),
    (S + "  b: {nap: , if: '{{ 1 }} and {{ 2 }}'}\n", 4, "steps.b.if", "one expression"),
    (S + "  b: {nap: , if: a.output}\n", 4, "steps.b.if", "read as steps.NAME.output"),
    (S + "  b: {nap: , if: tasks.a.output}\n", 4, "steps.b.if", "read as steps.NAME.output"),
    (S + "  b: {nap: , if: input.x}\n", 4, "steps.b.if", "did you mean 'inputs'?"),
    (S + "  b: {nap: , if: item, foreach: [1]}\n", 4, "steps.b.if", "only inside the items"),
    (S + "  b: {nap: , if: inputs.x}\n", 4, "steps.b.if", "declares no input 'x'"),
    (S + "  b: {nap: , if: task.nmae}\n", 4, "steps.b.if", "a task has no 'nmae'"),
    (S + "  b: {nap: , foreach: 5}\n", 4, "steps.b.foreach", "takes a list"),
    (S + "  b: {nap: , foreach: true}\n", 4, "steps.b.foreach", "takes a list"),
    (S + "  b: {nap: , foreach: {a: 1}}\n", 4, "steps.b.foreach", "takes a list"),
    (S + "  b: {nap: , foreach: }\n", 4, "steps.b.foreach", "takes a list"),
    (S + "  b: {nap: , foreach: ''}\n", 4, "steps.b.foreach", "takes a list"),
    (S + "  b: {nap: , foreach: aa.files}\n", 4, "steps.b.foreach", "no step 'aa'; did you mean 'a'?"),
    (S + "  b: {nap: , foreach: a.files}\n", 4, "steps.b.foreach", "not upstream of 'b'"),
    (S + "  b: {nap: , foreach: b.files}\n", 4, "steps.b.foreach", "its own output"),
    (S + "  b: {nap: , foreach: 'x {{ 1 }}'}\n", 4, "steps.b.foreach", "one expression"),
    (S + "  b: {nap: , foreach: item}\n", 4, "steps.b.foreach", "no step 'item'"),
    (S + "inputs: {n: integer}\n", None, "", ""),
    ("inputs: {n: integer}\n" + S + "  b: {nap: , foreach: inputs.n}\n", 5, "steps.b.foreach",
     "of type integer, not list"),
    ("inputs: {n: {type: string, default: x}}\n" + S + "  b: {nap: , parallel: inputs.n}\n", 5,
     "steps.b.parallel", "of type string"),
    ("name: x\nsteps:\n  a: {nap: , output: {type: object}}\n"
     "  b: {nap: , depends_on: a, foreach: a}\n", 4, "steps.b.foreach", "is not a list"),
    (S + "  b: {nap: , parallel: 0}\n", 4, "steps.b.parallel", "from 1 to 10,000"),
    (S + "  b: {nap: , parallel: -3}\n", 4, "steps.b.parallel", "from 1 to 10,000"),
    (S + "  b: {nap: , parallel: 10001}\n", 4, "steps.b.parallel", "from 1 to 10,000"),
    (S + "  b: {nap: , parallel: true}\n", 4, "steps.b.parallel", "takes a count"),
    (S + "  b: {nap: , parallel: 1.5}\n", 4, "steps.b.parallel", "takes a count"),
    (S + "  b: {nap: , parallel: [1]}\n", 4, "steps.b.parallel", "takes a count"),
    (S + "  b: {nap: , parallel: 2, foreach: [1]}\n", 4, "steps.b.parallel", "not both"),
    (S + "  b: {nap: , concurrency: 2}\n", 4, "steps.b.concurrency", "needs foreach"),
    (S + "  b: {nap: , parallel: 2, concurrency: 0}\n", 4, "steps.b.concurrency", "at least 1"),
    (S + "  b: {nap: , parallel: 2, concurrency: true}\n", 4, "steps.b.concurrency", "whole"),
    (S + "  b: {nap: , timeout: 0s}\n", 4, "steps.b.timeout", "longer than zero"),
    (S + "  b: {nap: , timeout: -1s}\n", 4, "steps.b.timeout", "negative"),
    (S + "  b: {nap: , timeout: 400d}\n", 4, "steps.b.timeout", "longer than a year"),
    (S + "  b: {nap: , timeout: true}\n", 4, "steps.b.timeout", "a duration is text"),
    (S + "  b: {nap: , timeout: '{{ inputs.x }}'}\n", 4, "steps.b.timeout", "not a duration"),
    (S + "  b: {nap: , retry: 3}\n", 4, "steps.b.retry", "as in retry: {max_attempts: 3}"),
    (S + "  b: {nap: , retry: {max_attempts: 0}}\n", 4, "steps.b.retry.max_attempts", "at least 1"),
    (S + "  b: {nap: , retry: {max_attempts: 1001}}\n", 4, "steps.b.retry.max_attempts", "1,000"),
    (S + "  b: {nap: , retry: {delay: 2}}\n", 4, "steps.b.retry.delay", "such as 2s"),
    (S + "  b: {nap: , retry: {delay: 2d}}\n", 4, "steps.b.retry.delay", "at most 1d, and is 2d"),
    (S + "  b: {nap: , retry: {factor: 0.5}}\n", 4, "steps.b.retry.factor", "at least 1"),
    (S + "  b: {nap: , retry: {delay: 5m, max_delay: 1s}}\n", 4, "steps.b.retry", "shorter"),
    (S + "  b: {nap: , output: {type: objekt}}\n", 4, "steps.b.output.type", "not one of object, array"),
    (S + "  b: {nap: , output: text}\n", 4, "steps.b.output", "must be a mapping"),
    (S + "  b: {nap: , output: {$ref: 'http://x/y'}}\n", 4, "steps.b.output.$ref", "into this schema"),
    (S + "  b: {do: '{{ steps.a.output }}'}\n", 4, "steps.b.do.what", "add a to depends_on"),
    (S + "  b: {do: '{{ steps.b.output }}'}\n", 4, "steps.b.do.what", "its own output"),
    (S + "  b: {do: '{{ steps.zz.output }}'}\n", 4, "steps.b.do.what", "no step 'zz'"),
    (S + "  b: {depends_on: a, do: '{{ steps.a.result }}'}\n", 4, "steps.b.do.what",
     "steps.a.output.result"),
    (S + "  b: {do: '{{ steps }}'}\n", 4, "steps.b.do.what", "read by name"),
    (S + "  b: {do: '{{ steps[task.id] }}'}\n", 4, "steps.b.do.what", "read by name"),
    (S + "  b: {do: '{{ item }}'}\n", 4, "steps.b.do.what", "only inside the items"),
    (S + "  b: {do: '{{ nope'}\n", 4, "steps.b.do.what", "cannot be read"),
    (S + "  b: {do: '{{ 1 | nofilter }}'}\n", 4, "steps.b.do.what", "no filter 'nofilter'"),
    (S + "  b: {do: {what: x, with: {k: ['{{ nope }}']}}}\n", 4, "steps.b.do.with.k[0]", "'nope'"),
    (S + "on: daily\n", 4, "on", "must be a mapping"),
    (S + "on: {schedul: x}\n", 4, "on.schedul", "did you mean 'schedule'?"),
    (S + "on: {schedule: {cron: '0 25 * * *'}}\n", 4, "on.schedule.cron", "not a cron expression"),
    (S + "on: {schedule: {cron: '* * *'}}\n", 4, "on.schedule.cron", "five fields"),
    (
        S + "on: {watch: {path: {path: x, match: '*.{txt,pdf}'}}}\n",
        4,
        "on.watch.path.match",
        'give a list: ["*.txt", "*.pdf"]',
    ),
    (
        S + "on: {watch: {path: {path: x, match: ['*.txt', 'a/*.pdf']}}}\n",
        4,
        "on.watch.path.match[1]",
        "can match nothing",
    ),
    (
        S + "on: {watch: {git: {url: x, tags: 'v{1,2}*'}}}\n",
        4,
        "on.watch.git.tags",
        'give a list: ["v1*", "v2*"]',
    ),
    (S + "on: {schedule: {cron: '5/15 * * * *'}}\n", 4, "on.schedule.cron", "of 5/15 write 5-59/15"),
    (S + "on: {schedule: {cron: '0 1,2/3 * * *'}}\n", 4, "on.schedule.cron", "write 2-23/3"),
    (S + "on: {schedule: {cron: '0 0 * * MON/2'}}\n", 4, "on.schedule.cron", "write MON-7/2"),
    (S + "on: {schedule: {cron: 5}}\n", 4, "on.schedule.cron", "must be text"),
    (S + "on: {schedule: [{cron: '0 0 31 2 *'}]}\n", 4, "on.schedule[0].cron", "cron expression"),
    (S + "on: {schedule: {}}\n", 4, "on.schedule", "exactly one of cron, every and at"),
    (S + "on: {schedule: {every: 0s}}\n", 4, "on.schedule.every", "longer than zero"),
    (S + "on: {schedule: {every: 1h, timezone: Mars/Base}}\n", 4, "on.schedule.timezone", "time zone"),
    (S + "on: {schedule: {every: 1h, catch_up: some}}\n", 4, "on.schedule.catch_up", "none, latest"),
    (S + "on: {schedule: {every: 1h, overlap: kill}}\n", 4, "on.schedule.overlap", "skip, queue"),
    (S + "on: {schedule: {every: 1h, inputs: {x: 1}}}\n", 4, "on.schedule[0].inputs", "no input 'x'"),
    ("inputs: {n: integer}\n" + S + "on: {schedule: {every: 1h}}\n", 5, "on.schedule[0].inputs",
     "'n' is missing"),
    ("inputs: {n: integer, t: integer}\n" + S
     + "on: {schedule: [{every: 1h, inputs: {t: '{{ trigger.late_by }}'}}]}\n", 5,
     "on.schedule[0].inputs", "'n' is missing"),
    ("inputs: {n: string}\n" + S + "on: {schedule: [{every: 1h, inputs: {n: '{{ 1 | }}'}}]}\n", 5,
     "on.schedule[0].inputs.n", "the template cannot be read"),
    ("inputs: {n: string}\n" + S + "on: {schedule: [{every: 1h, inputs: {n: '{{ inputs.n }}'}}]}\n", 5,
     "on.schedule[0].inputs.n", "there is no 'inputs' in the inputs of a trigger"),
    ("inputs: {n: string}\n" + S + "on: {schedule: [{every: 1h, inputs: {n: '{{ trigger.item }}'}}]}\n",
     5, "on.schedule[0].inputs.n", "trigger has no 'item'; it has kind, trigger, scheduled_for"),
    ("inputs: {n: list}\n" + S
     + "on: {watch: [{feed: 'https://x', inputs: {n: ['{{ trigger.items }}']}}]}\n", 5,
     "on.watch[0].inputs.n[0]", "trigger has no 'items'; did you mean 'item'?"),
    (S + "on: {watch: {python: nocolon}}\n", 4, "on.watch.python", "write it like 'my_steps:new_items'"),
    (S + "on: {schedule: [{every: 60s}, {every: 1m, catch_up: all}]}\n", 4, "on.schedule[1]",
     "on.schedule[0] has the same times; remove one of them, or give each an id"),
    (S + "on: {watch: [{feed: 'https://x'}, {feed: 'https://x', every: 1m}]}\n", 4, "on.watch[1]",
     "on.watch[0] has the same source"),
    (S + "on: {schedule: {id: a, every: 1m}, watch: {id: a, feed: 'https://x'}}\n", 4, "on.watch[0]",
     "on.schedule[0] has the id 'a' too; each trigger needs an id of its own"),
    (S + "on: {watch: {every: 1h}}\n", 4, "on.watch", "exactly one of feed, url, path,"),
    (S + "on: {watch: {feed: 'ftp://x'}}\n", 4, "on.watch.feed", "starts with http:// or https://"),
    (
        S + "on: {watch: {url: {url: 'http://x', pattern: '('}}}\n",
        4,
        "on.watch.url.pattern",
        "is not a regular expression",
    ),
    (
        S + "on: {watch: {url: {url: 'http://x', select: 'p['}}}\n",
        4,
        "on.watch.url.select",
        "'p[' is not a CSS selector",
    ),
    (
        S + "on: {watch: {url: {url: 'http://x', jmespath: 'a.['}}}\n",
        4,
        "on.watch.url.jmespath",
        "'a.[' is not a JMESPath expression",
    ),
    (S + "on: {webhook: {secret: hunter2}}\n", 4, "on.webhook.secret", "by reference"),
    (S + "on: {webhook: {}}\n", 4, "on.webhook.secret", "is missing"),
    (S + "on: {chat: {command: /Go!}}\n", 4, "on.chat.command", "write it like 'triage'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "key", "words"), BAD)
def test_each_rule_is_reported_with_its_line_and_key(
    text: str, line: int | None, key: str, words: str
) -> None:
    """The message says what is wrong, where, and what would be right."""
    problems = check_text(text, "f.yaml", KINDS)
    if not words:
        assert problems == []
        return
    found = [p for p in problems if words in str(p)]
    assert found, "\n".join(map(str, problems))
    assert (found[0].line, found[0].key) == (line, key)
    assert found[0].file == "f.yaml"


def test_every_problem_is_reported_at_once() -> None:
    """Problems of the file, of several steps, and several of one step, in the order of the lines."""
    problems = check_text(
        """
name: Bad Name
max_parallel: 0
steps:
  a:
    depends_on: [c, zz]
    dos: {what: x}
  b:
    depends_on: a
    run_on: allways
    if: "x =="
    timeout: 5
    foreach: 7
    output: {type: objekt}
    do: {what: "{{ nope }} {{ steps.q.output }}", count: 0}
  c:
    depends_on: b
    llm: {prompt: x}
output: "{{ steps.q.output }}"
""",
        kinds=KINDS,
    )
    reported = [(problem.line, problem.key) for problem in problems]
    assert reported == [
        (2, "name"), (3, "max_parallel"), (6, "steps.a.depends_on"), (6, "steps.a.depends_on[1]"),
        (7, "steps.a.dos"), (10, "steps.b.run_on"), (11, "steps.b.if"), (12, "steps.b.timeout"),
        (13, "steps.b.foreach"), (14, "steps.b.output.type"), (15, "steps.b.do.what"),
        (15, "steps.b.do.what"), (15, "steps.b.do.count"), (18, "steps.c.llm"), (19, "output"),
    ]  # fmt: skip
    assert "a -> c -> b -> a" in str(problems[2])
