"""Puts the examples into the package, where an installed program finds them."""

from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithExamples(build_py):
    """The usual build, and the examples as `agent/examples`."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            # An editable installation has those of the clone.
            return
        for source in sorted(Path("examples").rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts:
                target = Path(self.build_lib, "agent", source)
                target.parent.mkdir(parents=True, exist_ok=True)
                self.copy_file(str(source), str(target))


commands: dict[str, Any] = {"build_py": BuildWithExamples}
setup(cmdclass=commands)
