"""What a release installs: under which licences, and with which known vulnerabilities.

    python -m tests.dependencies.audit

prints the licence of each package of `constraints.txt` and asks a database of vulnerabilities about
them and about the oldest build tools that `pyproject.toml` allows. Exit code 1: there is a known
vulnerability. Exit code 3: the database was not reached, or does not know some of the packages.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
_SECONDS = 300
_SHOWN = 10
CLEAN, VULNERABLE, NOT_AUDITED = 0, 1, 3


def pinned(text: str) -> list[Requirement]:
    """Return the packages that constraints name, without their hashes."""
    whole = text.replace("\\\n", " ")
    lines = [re.split(r"\s--hash=", line)[0].strip() for line in whole.splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def oldest_build_tools() -> list[str]:
    """Return the build requirements, each pinned to the oldest version that it allows."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = []
    for text in document["build-system"]["requires"]:
        requirement = Requirement(text)
        (least,) = [part.version for part in requirement.specifier if part.operator == ">="]
        found.append(f"{requirement.name}=={least}")
    return found


def licence(name: str) -> str:
    """Return the licence that an installed package declares."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return "(not installed here)"
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or []
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    # Some packages put the whole text into the last of these.
    expression, text = (about.get_all(name) or [""] for name in ("License-Expression", "License"))
    declared = expression[0] or ", ".join(classifiers) or text[0].strip().partition("\n")[0]
    return declared or "(undeclared)"


def print_licences(packages: list[Requirement]) -> None:
    """Print one line for each package."""
    for package in packages:
        print(f"{package.name:<28} {package.specifier!s:<16} {licence(package.name)}")


def ask(requirements: str) -> dict[str, list[str] | None]:
    """Return the vulnerabilities of each package; None where the database does not know it."""
    with tempfile.TemporaryDirectory() as directory:
        listed, answer = Path(directory) / "requirements.txt", Path(directory) / "answer.json"
        listed.write_text(requirements, encoding="utf-8")
        subprocess.run(
            [sys.executable, "-m", "pip_audit", "--requirement", str(listed), "--disable-pip",
             "--no-deps", "--progress-spinner=off", "--format=json", f"--output={answer}"],
            check=False,
            capture_output=True,
            timeout=_SECONDS,
        )  # fmt: skip
        # Without an answer there is no file: its exit code does not tell this from a finding.
        if not answer.exists():
            return {}
        document = json.loads(answer.read_text(encoding="utf-8"))
    return read(document)


def read(document: dict[str, list[dict[str, object]]]) -> dict[str, list[str] | None]:
    """Return pip-audit's answer by package: a skipped package is not a sound one."""
    found: dict[str, list[str] | None] = {}
    for package in document["dependencies"]:
        name = str(package["name"])
        vulnerabilities = package.get("vulns")
        if not isinstance(vulnerabilities, list):
            found[name] = None
        else:
            found[name] = [str(each["id"]) for each in vulnerabilities]
    return found


def judge(answers: dict[str, list[str] | None], asked: list[str]) -> int:
    """Print what the database says, and return the exit code for it."""
    vulnerable = {name: ids for name, ids in answers.items() if ids}
    for name, ids in sorted(vulnerable.items()):
        print(f"VULNERABLE {name}: {', '.join(ids)}")
    known = {_canonical(name) for name, ids in answers.items() if ids is not None}
    silent = sorted(name for name in asked if _canonical(name) not in known)
    if silent:
        print(
            f"NOT AUDITED: the database of vulnerabilities was not reached or does not know"
            f" {len(silent)} of {len(asked)} packages: {', '.join(silent[:_SHOWN])}"
            + (" …" if len(silent) > _SHOWN else "")
        )
    if vulnerable:
        return VULNERABLE
    if silent:
        return NOT_AUDITED
    print(f"no known vulnerability in {len(asked)} packages")
    return CLEAN


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Print licences and findings; return the exit code."""
    packages = pinned(CONSTRAINTS.read_text(encoding="utf-8"))
    print_licences(packages)
    print()
    pins = [f"{package.name}{package.specifier}" for package in packages] + oldest_build_tools()
    return judge(ask("\n".join(pins) + "\n"), [Requirement(pin).name for pin in pins])


if __name__ == "__main__":
    sys.exit(main())
