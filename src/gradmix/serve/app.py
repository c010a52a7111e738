"""The whole application: the gate, the API behind it, and the page."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib import resources

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import RedirectResponse, Response
from PIL.Image import DecompressionBombWarning
from starlette.exceptions import HTTPException

from .. import __version__
from ..errors import UserError
from .api import make_router
from .busy_path import BusyPath
from .desk import Desk
from .gate import Door, Gate
from .origin import allowed_names, is_loopback
from .page_gate import PAGE
from .refusal import BROKEN, Refusal

_ABOUT = """Image recognition that says "unknown". Images are sent as files of a form, in the field `images`:

    curl -F images=@a.jpg -F images=@b.jpg http://127.0.0.1:7860/v1/predict

Everything that is refused is answered with a 4xx (or 503, try again) and `{"error": "one line"}`."""
ENDPOINTS = frozenset(
    {"/v1/predict", "/v1/explain", "/v1/discover", "/v1/enroll", "/v1/forget", "/healthz", "/metrics"}
)


def create_app(
    desk: Desk, host: str = "127.0.0.1", allow_hosts: Collection[str] = (), page: bool = True
) -> tuple[FastAPI, Gate]:
    """The application that serves ``desk`` on ``host``, and the gate around it, which is what to run.

    ``allow_hosts``: more names under which clients may call it; ``page`` False leaves the page out.
    """
    app = FastAPI(
        title="gradmix",
        version=__version__,
        description=_ABOUT,
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        lifespan=_following(desk),
        # Newer versions can export to other hosts, if told so by the environment: not from here.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
    )
    app.include_router(make_router(desk))
    _answer_refusals(app)
    _document_token(app)
    if page:
        from .page import mount_page

        mount_page(app, desk)

        @app.get("/", include_in_schema=False)
        async def to_the_page() -> Response:
            return RedirectResponse(PAGE + "/")

        @app.get("/favicon.ico", include_in_schema=False)
        async def icon() -> Response:
            return Response(
                (resources.files(__package__) / "icon.svg").read_bytes(), media_type="image/svg+xml"
            )

    door = Door(allowed_names(host, allow_hosts), not is_loopback(host))
    return app, Gate(BusyPath(app, desk), desk.limits, door, desk.metrics, ENDPOINTS)


def _following(desk: Desk):  # type: ignore[no-untyped-def]
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Refused by name a moment later; as warnings they would be lines in the log at any client's wish.
        warnings.simplefilter("ignore", DecompressionBombWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="PIL")
        desk.live.follow()
        yield
        desk.close()

    return lifespan


def _answer_refusals(app: FastAPI) -> None:
    """Whatever goes wrong, the answer is one line of JSON."""

    def answer(refusal: Refusal) -> Response:
        return Response(refusal.body, refusal.status, refusal.headers, "application/json")

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return answer(error)

    @app.exception_handler(UserError)
    async def mistaken(request: Request, error: UserError) -> Response:
        return answer(Refusal(422, str(error)))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return answer(Refusal(422, f"{where}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def failed(request: Request, error: HTTPException) -> Response:
        reason = HTTPStatus(error.status_code).phrase.lower()
        refusal = Refusal(error.status_code, f"{reason}: {request.method} {request.url.path}")
        response = answer(refusal)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        return answer(BROKEN)


def _document_token(app: FastAPI) -> None:
    """Declare the token in the OpenAPI document; it is checked by :class:`.auth.Guard`."""

    def document() -> dict[str, object]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            schemes = found.setdefault("components", {}).setdefault("securitySchemes", {})
            schemes["token"] = {
                "type": "http",
                "scheme": "bearer",
                "description": "needed once the server was given a token",
            }
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
