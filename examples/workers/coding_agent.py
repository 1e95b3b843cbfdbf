"""Lets a command-line coding agent work on a step: in a worktree of its own, on a branch of its own.

    agent queue work coding_agent -- python3 coding_agent.py codex exec

`agent queue work` starts this once for each step, with the claim as JSON on standard input. The goal is
appended to the command. What the coding agent prints goes to the step's log; the output of the step is
the branch with its commit, and the difference.

An attempt starts from the repository's HEAD: what an earlier one left in its worktree is removed.
"""

import json
import subprocess
import sys
from pathlib import Path

NOTHING_CHANGED = 3
"""An exit code of its own: `--final-code 3` lets the step fail at once instead of trying again."""


def main(command: list[str]) -> int:
    """Work on the step whose claim is on standard input."""
    claim = json.load(sys.stdin)
    repository = Path(claim["input"]["repository"]).resolve()
    goal = claim["input"]["goal"]
    branch = f"work-{claim['task'][-12:]}"
    directory = repository.parent / branch

    if directory.exists():
        git(repository, "worktree", "remove", "--force", str(directory))
    git(repository, "worktree", "prune")
    git(repository, "worktree", "add", "--quiet", "-B", branch, str(directory))

    # Its output is for people, and the step's own output is printed below.
    done = subprocess.run(
        [*command, goal], check=False, cwd=directory, stdin=subprocess.DEVNULL, stdout=2
    )
    if done.returncode != 0:
        print(f"the coding agent ended with {done.returncode}", file=sys.stderr)
        return 1
    git(directory, "add", "--all")
    if not git(directory, "status", "--porcelain"):
        print("the coding agent changed nothing", file=sys.stderr)
        return NOTHING_CHANGED
    git(directory, "commit", "--quiet", "-m", goal)
    result = {
        "branch": branch,
        "directory": str(directory),
        "commit": git(directory, "rev-parse", "HEAD").strip(),
        "difference": git(directory, "show", "--stat", "--patch", "HEAD"),
    }
    print(json.dumps(result))
    return 0


def git(directory: Path, *arguments: str) -> str:
    """Run git in a directory and return what it prints."""
    done = subprocess.run(
        ["git", "-C", str(directory), *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
