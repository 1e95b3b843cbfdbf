"""Workflows that tests of the server start: each ends, waits or asks in its own way."""

QUICK = """\
name: quick
description: Two steps that end at once.
inputs:
  word: {type: string, default: hello}
steps:
  one: {shell: {argv: [echo, "{{ inputs.word }}"], effect: none}}
  two: {depends_on: [one], wait: 1ms}
output: "{{ steps.one.output.stdout | trim }}"
"""


SIGNALLED = """\
name: signalled
steps:
  ask: {wait: {signal: go}}
  tell: {depends_on: [ask], wait: 1ms}
output: "{{ steps.ask.output }}"
"""


FAILING = """\
name: failing
steps:
  fine: {shell: {argv: [echo, fine], effect: none}}
  bad: {depends_on: [fine], shell: {argv: ["false"], effect: none}, retry: {max_attempts: 1}}
"""


GATED = """\
name: gated
inputs:
  word: {type: string, default: paid}
steps:
  pay:
    approval: {message: "Pay?", editable: [argv]}
    shell: {argv: [echo, "{{ inputs.word }}"], effect: none}
output: "{{ steps.pay.output.stdout | trim }}"
"""


ASKING = """\
name: asking
steps:
  color: {input: {message: "Which color?", choices: [red, blue]}}
output: "{{ steps.color.output.value }}"
"""
