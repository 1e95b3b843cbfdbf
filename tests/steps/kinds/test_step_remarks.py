"""Remarks about steps: what will fail when they run, also in a file with problems."""

from pathlib import Path

import agent.steps.spec.registry  # noqa: F401  (registers the kinds of steps)
from agent.config.settings import Settings
from agent.steps.kinds import step_remarks
from agent.workflows.directory import NamedWorkflows, read_entry

STEPS = """\
name: w
steps:
  module: {python: {call: "nowhere_at_all:f"}}
  unknown: {llm: {model: nomodel, prompt: hi}}
  default: {llm: {prompt: hi}}
  echo: {llm: {model: echo, prompt: hi}}
  either: {llm: {model: "{{ inputs.model }}", prompt: hi}}
  private: {http: {get: "http://169.254.169.254/x"}}
  here: {http: {post: "http://localhost:8000/{{ task.id }}"}}
  public: {http: {get: "https://example.com/"}}
  computed: {http: {get: "https://{{ inputs.model }}/x"}}
  all_computed: {http: {get: "{{ inputs.model }}/x"}}
  bare: {http: {get: "example.com/{{ inputs.model }}"}}
  ftp: {http: {get: "ftp://example.com/x"}}
"""


def _remarks(tmp_path: Path, text: str, settings: Settings | None) -> dict[str, str]:
    file = tmp_path / "w.yaml"
    file.write_text(text, encoding="utf-8")
    found = step_remarks.of_file(read_entry(file), NamedWorkflows(), settings)
    return dict(line.removeprefix("step ").split(": ", 1) for line in found)


def test_what_will_fail_is_remarked(tmp_path: Path) -> None:
    """Modules, models and addresses; what a template makes is not judged."""
    text = STEPS + "inputs: {model: {type: string, default: echo}}\n"
    found = _remarks(tmp_path, text, Settings())
    assert set(found) == {"module", "unknown", "default", "private", "here", "bare", "ftp"}
    assert "[models.nomodel]" in found["unknown"]
    assert "[llm]" in found["default"]
    assert "begins with https:// or http://" in found["bare"]
    assert "begins with https:// or http://" in found["ftp"]
    assert 'allow_private = ["169.254.169.254"]' in found["private"]
    allowed = Settings.model_validate(
        {"http": {"allow_private": ["localhost", "169.254.0.0/16"]}, "llm": {"model": "echo"}}
    )
    assert set(_remarks(tmp_path, text, allowed)) == {"module", "unknown", "bare", "ftp"}
    assert set(_remarks(tmp_path, text, None)) == {"module", "bare", "ftp"}, (
        "without settings, less is known"
    )


def test_problems_do_not_hide_remarks(tmp_path: Path) -> None:
    """The steps without problems are checked all the same."""
    found = _remarks(tmp_path, STEPS + "  wrong: {shel: {argv: [x]}}\n", Settings())
    assert {"module", "unknown", "private"} <= set(found)
