"""The record of a siege, collected from outside only: the judge reads nothing else."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Sent:
    """One request that reached a remote, or one line that a command wrote."""

    at: int
    """Nanoseconds of the machine's clock."""
    acted: bool
    answer: str
    """How the remote answered; `line` for a command."""
    key: str | None = None


@dataclass
class Record:
    """Everything that is judged; effects are named TICKET/STEP."""

    tickets: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of each acknowledged task: its workflow and its id."""
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The document of each task by its id, children included, when all was over."""
    started: list[tuple[str, str]] = field(default_factory=list)
    """(ticket, task id) of all tasks that the agent lists, but for children."""
    sent: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    confirmations: dict[str, list[bool | None]] = field(default_factory=lambda: defaultdict(list))
    """What remotes answered when an agent asked them whether they acted."""
    verdicts: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """What the person answered: by effect, for each unknown call its verdict."""
    signed: set[str] = field(default_factory=set)
    """The tickets that the person approved."""

    def read(self, ledger: Path, book: Path) -> None:
        """Read what the remotes and the commands wrote down."""
        for text in ledger.read_text(encoding="utf-8").splitlines():
            entry = json.loads(text)
            if entry["what"] == "asked":
                self.confirmations[entry["effect"]].append(entry["said"])
                continue
            sent = Sent(entry["at"], entry["acted"], entry["answer"], entry["key"])
            self.sent[entry["effect"]].append(sent)
        for text in book.read_text(encoding="utf-8").splitlines() if book.exists() else ():
            effect, at = text.split()
            self.sent[effect].append(Sent(int(at), acted=True, answer="line"))
