"""The page: static files that call the API, so that it has the API's limits and the same answers."""

from __future__ import annotations

from importlib import resources
from string import Template

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from .guard import PAGE
from .http import HTTPError
from .service import ModelService

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HERE, _SHARED = "gradmix.serve.page_files", "gradmix.export.web"
_FILES = {"page.js": _HERE, "page.css": _SHARED, "gallery.js": _SHARED, "icon.svg": _SHARED}


def make_page(service: ModelService) -> APIRouter:
    """Return the routes of the page of one served model."""
    router = APIRouter(include_in_schema=False)
    files = {name: (resources.files(folder) / name).read_bytes() for name, folder in _FILES.items()}
    front = Template((resources.files(_HERE) / "index.html").read_text(encoding="utf-8")).substitute(
        most_images=service.limits.images,
        most_bytes=service.limits.upload_bytes,
        token="true" if service.token.required else "false",
    )

    @router.get("/")
    async def redirect_to_page() -> Response:
        return RedirectResponse(PAGE + "/")

    @router.get(PAGE + "/")
    async def show_front() -> Response:
        return Response(front, media_type="text/html; charset=utf-8", headers={"Cache-Control": "no-cache"})

    @router.get(PAGE + "/{name}")
    async def send_file(name: str) -> Response:
        if name not in files:
            raise HTTPError(404, "there is nothing here")
        kind = _TYPES[name.rpartition(".")[2]]
        headers = {"Cache-Control": "no-cache"}
        return Response(files[name], media_type=f"{kind}; charset=utf-8", headers=headers)

    @router.get("/favicon.ico")
    async def icon() -> Response:
        return Response(files["icon.svg"], media_type=_TYPES["svg"])

    return router
