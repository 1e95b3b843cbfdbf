"""Serves the style sheet, the script and the icon: the same for everyone, kept for ever."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from agent.server.pages.framework.assets import Asset, all_assets
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.problems import Problem

pages = PageRegistry("files")

_YEAR: Final = 31_536_000
_DAY: Final = 86_400


@pages.open_route("/assets/{name}")
async def asset(request: Request) -> Response:
    """Return an asset; its name changes with its content."""
    asset = all_assets().get(request.path_params["name"])
    if asset is None:
        raise Problem(404, "not-found", "there is nothing at this address")
    return _sent(request, asset, f"public, max-age={_YEAR}, immutable")


@pages.open_route("/favicon.ico")
async def favicon(request: Request) -> Response:
    """Return the icon, which browsers ask for at this address where a response names none, as JSON."""
    (icon,) = (asset for asset in all_assets().values() if asset.media == "image/svg+xml")
    return _sent(request, icon, f"public, max-age={_DAY}")


def _sent(request: Request, asset: Asset, kept: str) -> Response:
    headers = {"cache-control": kept, "vary": "accept-encoding"}
    body = asset.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        body = asset.zipped
        headers["content-encoding"] = "gzip"
    return Response(body, headers=headers, media_type=asset.media)
