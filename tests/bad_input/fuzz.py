"""Atheris on everything that reads foreign input: `make fuzz`.

    python -m tests.bad_input.fuzz [--seconds N] [TARGET …]

Each target runs in a process of its own, guided by what it covers, from the same good input as the
tests. An exception that gets out, an input that takes ten seconds, or two gigabytes, ends it with
the input in a file, which is named.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def main() -> int:
    """Fuzz the chosen targets one after another; the status is bad if one has a finding."""
    from tests.bad_input.targets import TARGETS, good

    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("targets", nargs="*", choices=[[], *TARGETS])
    options.add_argument("--seconds", type=int, default=30, help="for each of them")
    chosen = options.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("atheris is needed: pip install -e .[fuzz]")
        return 2
    has_findings = False
    for name in chosen.targets or TARGETS:
        found = Path(tempfile.mkdtemp(prefix=f"agent-fuzz-{name}-"))
        corpus = found / "corpus"
        corpus.mkdir()
        for number, text in enumerate(good(name)):
            (corpus / str(number)).write_bytes(text)
        done = subprocess.run(
            [sys.executable, "-m", "tests.bad_input.fuzz", "--in-process", name, str(corpus),
             f"-max_total_time={chosen.seconds}", "-timeout=10", "-rss_limit_mb=2048",
             "-max_len=4096", f"-artifact_prefix={found}/"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )  # fmt: skip
        last = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
        if done.returncode == 0:
            print(f"{name}: {last[-1] if last else 'done'}", flush=True)
            shutil.rmtree(found)
            continue
        has_findings = True
        print(f"{name}: a finding in {found}\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return 1 if has_findings else 0


def _fuzz(name: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["agent", "jinja2", "cronsim", "ruamel"]):
        from tests.bad_input.targets import TARGETS

    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-process"]:
        _fuzz(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
