"""The application (the guard, the API behind it, and the page) and the process that runs it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from http import HTTPStatus
from types import FrameType

import torch
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from PIL.Image import DecompressionBombWarning
from starlette.exceptions import HTTPException

from .. import __version__
from ..errors import UserError
from ..machine import count_cores
from .access import HostPolicy, is_loopback
from .api import FastPredict, make_router
from .class_api import make_class_router
from .connections import ConnectionTable, make_protocol
from .guard import RequestGuard
from .http import INTERNAL_ERROR, HTTPError
from .page import make_page
from .service import ModelService, default_workers

_ABOUT = """Image recognition that says "unknown". Images are sent as files of a form, in the field `images`:

    curl -F images=@a.jpg -F images=@b.jpg http://127.0.0.1:7860/v1/predict

Everything that is refused is answered with a 4xx (or 503, try again) and `{"error": "one line"}`."""
ENDPOINTS = frozenset(
    {"/v1/predict", "/v1/explain", "/v1/discover", "/v1/enroll", "/v1/forget", "/healthz", "/metrics"}
    | {"/v1/drift", "/v1/classes", "/v1/undo", "/livez", "/readyz"}
)
_SECONDS_TO_FINISH = 30


def create_app(
    service: ModelService, host: str = "127.0.0.1", allow_hosts: Collection[str] = (), page: bool = True
) -> tuple[FastAPI, RequestGuard]:
    """Return the application that serves ``service`` on ``host``, and the guard around it, to be run.

    ``allow_hosts``: more names by which clients may call it; ``page`` False leaves the page out.
    """
    app = FastAPI(
        title="gradmix",
        version=__version__,
        description=_ABOUT,
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        lifespan=_make_lifespan(service),
        # Newer versions of FastAPI can export to other hosts if the environment says so.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
    )
    app.include_router(make_router(service))
    _add_error_handlers(app)
    _document_token(app)
    app.include_router(make_class_router(service))
    if page:
        app.include_router(make_page(service))

    hosts = HostPolicy.for_address(host, allow_hosts)
    guard = RequestGuard(
        FastPredict(app, service), service.limits, hosts, service.metrics.count_request, ENDPOINTS
    )
    return app, guard


def _make_lifespan(service: ModelService) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # These images get an error of their own; as warnings, any client could write lines into the log.
        warnings.simplefilter("ignore", DecompressionBombWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="PIL")
        service.live.follow()
        yield
        service.close()

    return lifespan


def _add_error_handlers(app: FastAPI) -> None:
    """Answer every error with one line of JSON."""

    def respond(error: HTTPError) -> Response:
        return Response(error.body, error.status, error.headers, "application/json")

    @app.exception_handler(HTTPError)
    async def handle_http_error(request: Request, error: HTTPError) -> Response:
        return respond(error)

    @app.exception_handler(UserError)
    async def handle_user_error(request: Request, error: UserError) -> Response:
        return respond(HTTPError(422, str(error)))

    @app.exception_handler(RequestValidationError)
    async def handle_validation_error(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return respond(HTTPError(422, f"{where}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def handle_framework_error(request: Request, error: HTTPException) -> Response:
        reason = HTTPStatus(error.status_code).phrase.lower()
        response = respond(HTTPError(error.status_code, f"{reason}: {request.method} {request.url.path}"))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def handle_internal_error(request: Request, error: Exception) -> Response:
        return respond(INTERNAL_ERROR)


def _document_token(app: FastAPI) -> None:
    """Declare the token in the OpenAPI document; it is checked by :class:`.access.AccessToken`."""

    def make_document() -> dict[str, object]:
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

    app.openapi = make_document  # type: ignore[method-assign]


def serve(
    service: ModelService, host: str = "127.0.0.1", port: int = 7860, allow_hosts: Collection[str] = ()
) -> None:
    """Listen on ``host``:``port`` (0: a free port) until SIGINT or SIGTERM; print the address when ready."""
    # Each of the network's workers computes with its share of the cores.
    torch.set_num_threads(max(1, count_cores() // default_workers()))
    _, guard = create_app(service, host, allow_hosts)
    config = uvicorn.Config(
        guard,
        host=host,
        port=port,
        log_level="error",  # with one line per malformed request, any client could fill the log
        access_log=False,
        proxy_headers=False,  # a client could claim any address in them
        server_header=False,
        http=make_protocol(ConnectionTable(per_client=service.limits.connections)),
        timeout_graceful_shutdown=_SECONDS_TO_FINISH,
        ws="none",
        lifespan="on",
    )
    listening = _listen(host, port)
    address = f"[{host}]" if ":" in host else host
    server = _Server(config, f"{address}:{listening.getsockname()[1]}", service)
    asyncio.run(server.serve(sockets=[listening]))


class _Server(uvicorn.Server):
    """uvicorn's server, which on a signal finishes its requests and returns instead of raising."""

    def __init__(self, config: uvicorn.Config, address: str, service: ModelService) -> None:
        super().__init__(config)
        self._address = address
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            live = self._service.live
            count = len(live.current.recognizer.class_names)
            print(f"serving {live.file} ({count} classes) at http://{self._address}/", flush=True)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        def stop(number: int, frame: FrameType | None) -> None:
            if self.should_exit:  # the second signal ends at once; model files are replaced atomically
                os._exit(128 + number)
            self.should_exit = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def warn_if_open(host: str, token: str | None) -> None:
    """Print a warning if anybody on the network could change the model."""
    if not is_loopback(host) and token is None:
        print(
            f"gradmix: listening on {host} without a token: whoever reaches this machine can change the "
            "model; set one with --token-file or $GRADMIX_TOKEN",
            file=sys.stderr,
            flush=True,
        )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot listen on {host}:{port}: {reason}; choose another --host or --port"
        ) from error
    return listening
