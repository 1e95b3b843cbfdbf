"""`agent artifact`: large values by their content."""

import hashlib
import json

from tests.cli.conftest import Cli

WORKFLOW = """\
name: large
steps:
  give: {python: {call: "textwrap:fill", with: {text: "{{ 'word ' * 40000 }}", width: 100}}}
output: "{{ steps.give.output | length }}"
"""


def test_a_large_output_is_printed_by_its_hash(cli: Cli) -> None:
    """The document shows the value itself; its hash, or the beginning of it, prints it too."""
    cli.write("large.yaml", WORKFLOW)
    task = cli("run", "large.yaml", "--wait", "--json").json
    (step,) = task["steps"]
    assert len(step["output"]) == task["output"] > 100_000
    stored = json.dumps(step["output"], ensure_ascii=False)
    name = hashlib.sha256(stored.encode()).hexdigest()
    assert json.loads(cli("artifact", name[:12]).out) == step["output"]
    cli("artifact", "0" * 64, code=3)
    cli("artifact", "what", code=2)
