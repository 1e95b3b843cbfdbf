"""What a run leaves: rows, the machine that they are of, and a picture."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench import chart
from bench.rows import Row


@dataclass(frozen=True, slots=True)
class Results:
    """The results of one run."""

    rows: list[Row]
    machine: dict[str, str]

    def save(self, path: Path) -> None:
        """Write the rows to a file, and the rest beside it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.rows, indent=1) + "\n", encoding="utf-8")
        _machine(path).write_text(json.dumps(self.machine, indent=1) + "\n", encoding="utf-8")
        path.with_suffix(".svg").write_text(chart.draw(self.rows), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what an earlier run left."""
        return cls(
            json.loads(path.read_text(encoding="utf-8")),
            json.loads(_machine(path).read_text(encoding="utf-8")),
        )


def _machine(path: Path) -> Path:
    return path.with_name("machine.json")
