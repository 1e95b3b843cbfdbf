"""`agent show TASK STEP`: each attempt, whatever the kind of the step."""

from tests.support.cli import Cli

WORKFLOW = """
name: inspected
inputs: {who: {type: string, default: world}}
steps:
  loud:
    retry: {max_attempts: 2, delay: 10ms}
    python: {call: "loud_steps:speak", with: {text: "{{ inputs.who }} {{ today | length }}"}}
  big: {depends_on: [loud], shell: {script: "yes x | head -c 9000", effect: none}}
  items: {foreach: [1, 2], python: {call: "json:dumps", with: {obj: "{{ item }}"}}}
"""
STEPS = """
def speak(text, ctx):
    print("hello", text)
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return text
"""


def test_each_attempt_is_shown(cli: Cli) -> None:
    """Configuration, log, traceback and error of one attempt; output of the other; large values cut."""
    cli.write("loud_steps.py", STEPS)
    cli.write("inspected.yaml", WORKFLOW)
    task = cli("run", "inspected.yaml", "--wait", "--json").json["id"]
    shown = cli("show", task, "loud").out
    assert "attempt 1 of 2: failed" in shown and "attempt 2 of 2: succeeded" in shown
    assert 'with: {"text": "world 10"}' in shown and "hello world 10" in shown
    assert "in speak" in shown and "containment" not in shown
    assert "error (exception): ValueError: not yet" in shown
    assert "output: world 10" in shown
    assert "attempt 1" not in cli("show", task, "loud", "--attempt", "2").out
    cli("show", task, "loud", "--attempt", "3", code=3)
    big = cli("show", task, "big").out
    assert "--output FILE" in big and len(big) < 6000
    assert len(cli("show", task, "big", "--json").json["output"]["stdout"]) == 9000
    group = cli("show", task, "items").out
    assert "items[0]" in group and "items[1]" in group
    assert "item: 2" in cli("show", task, "items[1]").out
    cli("show", task, "items[9]", code=3)
