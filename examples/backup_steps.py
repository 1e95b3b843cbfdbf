"""The functions of backup.yaml; each may be repeated without harm."""

import tarfile
import tempfile
from pathlib import Path


def plan(source: str, target: str, task: str) -> dict[str, str]:
    """Settle what is packed and where to; the task's id makes the names unique."""
    if not source:
        made = Path(tempfile.mkdtemp(prefix="backup-example-"))
        for number in range(5):
            (made / f"note-{number}.txt").write_text(f"note {number}\n")
        source = str(made)
    folder = Path(source).expanduser().resolve()
    if not folder.is_dir():
        raise ValueError(f"there is no directory {folder}")
    place = Path(target).expanduser() if target else Path(tempfile.gettempdir()) / "backups"
    place.mkdir(parents=True, exist_ok=True)
    archive = place.resolve() / f"{folder.name}-{task}.tar.gz"
    return {"source": str(folder), "archive": str(archive), "partial": f"{archive}.partial"}


def verify(source: str, archive: str) -> dict[str, int]:
    """Read the whole archive back, and compare it with what is in the directory."""
    with tarfile.open(archive) as packed:
        sizes = {
            member.name.removeprefix("./"): member.size for member in packed if member.isfile()
        }
    folder = Path(source)
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(folder).as_posix()
            if sizes.get(name) != path.stat().st_size:
                raise ValueError(f"{name} is not in the archive as it is in the directory")
    return {"files": len(sizes), "bytes": sum(sizes.values())}


def publish(partial: str, archive: str, keep: int) -> dict[str, object]:
    """Give the archive its name, and remove the oldest beyond those to keep."""
    done = Path(archive)
    if Path(partial).exists():
        Path(partial).rename(done)
    prefix = done.name[: -len("00000000-0000-0000-0000-000000000000.tar.gz")]
    siblings = sorted(done.parent.glob(f"{prefix}*.tar.gz"), key=lambda path: path.name)
    old = siblings[: max(len(siblings) - max(keep, 1), 0)]
    for path in old:
        path.unlink(missing_ok=True)
    return {"archive": archive, "removed": [path.name for path in old]}


def clean_up(partial: str) -> bool:
    """Remove what is left of an unfinished archive."""
    path = Path(partial)
    was_there = path.exists()
    path.unlink(missing_ok=True)
    return was_there
