"""The functions of disk-report.yaml."""

from typing import Any

PSEUDO = ("tmpfs", "devtmpfs", "overlay", "shm", "udev", "none")


def read(text: str) -> dict[str, Any]:
    """Read what `df -P -k` prints; file systems that are only memory are left out."""
    disks = []
    for line in text.splitlines()[1:]:
        parts = line.split(None, 5)
        if len(parts) < 6 or not parts[4].endswith("%") or parts[0] in PSEUDO:
            continue
        disks.append({"mount": parts[5], "percent": int(parts[4][:-1]), "free_kb": int(parts[3])})
    return {"disks": disks}


def judge(disks: list[dict[str, Any]], warn_percent: int) -> dict[str, Any]:
    """Sort the disks by how full they are, and name those over the limit."""
    ordered = sorted(disks, key=lambda disk: disk["percent"], reverse=True)
    full = [disk["mount"] for disk in ordered if disk["percent"] > warn_percent]
    return {"full": full, "disks": ordered}
