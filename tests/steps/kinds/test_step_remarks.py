"""Remarks about steps: what will fail when they run, also in a file with problems."""

from pathlib import Path
from typing import Any

import pytest

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


WATCHERS = """\
name: w
on:
  watch:
    - {id: page, url: "http://192.168.1.5/x"}
    - {feed: "http://localhost/feed"}
    - {id: team, calendar: "https://10.0.0.2/team.ics"}
    - {id: code, git: "git://127.0.0.1/x"}
    - {id: inbox, mail: {host: 10.0.0.3, user: ann, password: "env:X"}}
    - {id: public, url: "https://example.com/"}
    - {id: over_ssh, git: "ssh://git@10.0.0.4/x"}
    - {id: files, path: inbox}
steps: {rest: {wait: 1s}}
"""


def test_watchers_of_private_addresses_are_remarked(tmp_path: Path) -> None:
    """They would fail at every poll; SSH goes where its own configuration says."""
    file = tmp_path / "w.yaml"
    file.write_text(WATCHERS, encoding="utf-8")
    found = step_remarks.of_file(read_entry(file), NamedWorkflows(), Settings())
    assert [line.split(":")[0] for line in found] == [
        "watcher page",
        "watcher feed",
        "watcher team",
        "watcher code",
        "watcher inbox",
    ]
    assert 'allow_private = ["192.168.1.5"]' in found[0]
    allowed = Settings.model_validate(
        {"http": {"allow_private": ["localhost", "10.0.0.0/8", "192.168.1.5", "127.0.0.1"]}}
    )
    assert step_remarks.of_file(read_entry(file), NamedWorkflows(), allowed) == []


@pytest.mark.parametrize(
    ("budget", "where", "daily_usd", "named"),
    [
        ("", "", 5.0, "daily_usd in [budget]"),
        ("budget: {usd: 1}\n", "", 0.0, "`budget`"),
        ("", ", budget: {usd: 1}", 0.0, "`budget`"),
        ("budget: {tokens: 10}\n", "", 0.0, None),
    ],
)
def test_a_model_without_prices_under_a_limit_of_money_is_remarked(
    tmp_path: Path, budget: str, where: str, daily_usd: float, named: str | None
) -> None:
    """Its calls would be refused; one with prices is not remarked."""
    text = f"name: w\n{budget}steps:\n  ask: {{llm: {{model: big, prompt: hi}}{where}}}\n"
    model = {"provider": "openai", "model": "x"}
    raw: dict[str, Any] = {"models": {"big": model}, "budget": {"daily_usd": daily_usd}}
    found = _remarks(tmp_path, text, Settings.model_validate(raw))
    if named is None:
        assert found == {}
    else:
        assert f"{named} limits money, and model big has no price" in found["ask"]
    prices = {"usd_per_million_in": 1.0, "usd_per_million_out": 2.0}
    raw["models"] = {"big": model | prices}
    assert _remarks(tmp_path, text, Settings.model_validate(raw)) == {}


def test_code_that_is_not_there_is_remarked(tmp_path: Path) -> None:
    """A change of a file that `code` does not find would go unnoticed."""
    (tmp_path / "rates.csv").write_text("1")
    code = "code: [rates.csv, rate.csv]"
    text = f'name: w\nsteps: {{a: {{shell: {{argv: ["true"], {code}}}}}}}\n'
    assert _remarks(tmp_path, text, None) == {"a": "code: there is no file 'rate.csv'"}
