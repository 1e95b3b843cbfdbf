"""The style sheet, the script and the icon of the pages, under names that change with their content."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_DIRECTORY: Final = Path(__file__).parents[1] / "assets"
_MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, as it is served."""

    url_name: str
    media: str
    content: bytes
    zipped: bytes


@cache
def all_assets() -> dict[str, Asset]:
    """Return the assets by their names in addresses."""
    paths = [path for path in sorted(_DIRECTORY.iterdir()) if path.suffix in _MEDIA]
    read = (_read(path) for path in paths if "." not in path.stem)
    return {asset.url_name: asset for asset in read}


@cache
def url_of(name: str) -> str:
    """Return the address of an asset, which may be kept for ever."""
    stem, _, suffix = name.rpartition(".")
    (found,) = (
        asset
        for asset in all_assets()
        if asset.startswith(f"{stem}.") and asset.endswith(f".{suffix}") and asset.count(".") == 2
    )
    return f"/assets/{found}"


def _read(path: Path) -> Asset:
    # `page.work.css` is a part of `page.css`: one file for browsers, several for authors.
    parts = [path, *sorted(_DIRECTORY.glob(f"{path.stem}.*{path.suffix}"))]
    content = b"\n".join(part.read_bytes() for part in parts)
    digest = hashlib.sha256(content).hexdigest()[:12]
    return Asset(
        url_name=f"{path.stem}.{digest}{path.suffix}",
        media=_MEDIA[path.suffix],
        content=content,
        zipped=gzip.compress(content, mtime=0),
    )
