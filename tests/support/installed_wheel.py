"""The program as users have it: the wheel, built and installed in a virtual environment of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.dockerfile import copied

ROOT = Path(__file__).parents[2]
SOURCES = [name for name in copied() if name != "constraints.txt"]
"""What the image is built from: a file that the build needs and the Dockerfile does not copy is missing here."""
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def install(directory: Path) -> Path:
    """Build the wheel below a directory and return the environment in which it is installed.

    Its libraries are links to those of this environment. The `.pth` files are left out: that of an editable
    installation would add the clone, and all of them slow down each start of Python.
    """
    clone = directory / "clone"
    clone.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source, clone / name, ignore=skipped)
        else:
            shutil.copy(source, clone / name)
    build = ["wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(directory), str(clone)]
    subprocess.run([*_PIP, *build], check=True)
    (wheel,) = directory.glob("stepwarden-*.whl")
    environment = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    options = ["-q", "--no-compile", "--no-deps", "--no-index"]
    subprocess.run([*_PIP, "--python", str(python), "install", *options, str(wheel)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    _link_libraries(site)
    return environment


def _link_libraries(site: Path) -> None:
    for directory in (Path(path) for path in sys.path if path.endswith("site-packages")):
        for library in directory.iterdir():
            ours = ("agent-", "stepwarden-", "__editable__")
            is_ours = library.name == "agent" or library.name.startswith(ours)
            if is_ours or library.suffix == ".pth" or library.name == "__pycache__":
                continue
            if not (site / library.name).exists():
                (site / library.name).symlink_to(library)
