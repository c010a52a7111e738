"""The endpoints: parse the form, call the service, write JSON."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from ..detection.threshold import check_rate
from ..errors import UserError
from ..recognition import Explanation
from ..report.explanation_page import explanation_html, explanation_png, verdict
from ..report.pictures import heat_overlay, png
from . import schema
from .http import App, HTTPError, Receive, Scope, Send, send_json
from .limits import RequestContext, get_context
from .service import ModelService
from .uploads import DecodedImages, Form, parse_form

PREDICT = "/v1/predict"

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": schema.Error, "description": "the request is broken"},
    413: {"model": schema.Error, "description": "too many bytes, images or pixels"},
    415: {"model": schema.Error, "description": "neither a form nor an image"},
    422: {"model": schema.Error, "description": "no image can be read, or a parameter is wrong"},
    429: {"model": schema.Error, "description": "too many requests, or pixels at once; see Retry-After"},
    503: {"model": schema.Error, "description": "too much work at once, or too late; see Retry-After"},
}
_CHANGE_ERRORS = _ERRORS | {
    401: {"model": schema.Error, "description": "the token is missing or wrong"},
    503: {"model": schema.Error, "description": "too much work at once, or the model cannot be written"},
}
_NOT_WELL: dict[int | str, dict[str, Any]] = {503: {"description": "no: the status says why"}}
_YES, _NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}
_RATE = Query(description="reject this share of known images, between 0 and 1; default: the model's")
T = TypeVar("T")
Format = Literal["json", "png", "html"]


def make_router(service: ModelService) -> APIRouter:
    """Return the API of one served model."""
    router = APIRouter()

    async def run_in_helper(work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(service.helpers, work)

    async def read_form(request: Request) -> Form:
        body, content_type = await request.body(), request.headers.get("content-type", "")
        return await run_in_helper(lambda: parse_form(body, content_type))

    async def read_images(request: Request) -> DecodedImages:
        body, content_type = await request.body(), request.headers.get("content-type", "")
        return await _decode_body(service, body, content_type, get_context(request.scope))

    @router.post(
        PREDICT,
        tags=["ask"],
        response_model=schema.Verdicts,
        responses=_ERRORS,
        openapi_extra=schema.form_body(),
    )
    async def predict(request: Request, false_reject: Annotated[str, _RATE] = "") -> Response:
        """Name images, or call them unknown. An image that cannot be read has an `error` of its own."""
        body, content_type = await request.body(), request.headers.get("content-type", "")
        rate = _read_rate(false_reject)
        answer = await predict_body(service, body, content_type, get_context(request.scope), rate)
        return Response(answer, media_type="application/json")

    @router.post(
        "/v1/explain",
        tags=["ask"],
        response_model=schema.Explanations,
        responses=_ERRORS,
        openapi_extra=schema.form_body(),
    )
    async def explain(
        request: Request,
        format: Annotated[Format, Query(description="json; png (one image only); html, one page")] = "json",
        classes: Annotated[int, Query(ge=1, le=10, description="nearest classes shown")] = 3,
        neighbours: Annotated[int, Query(ge=1, le=20, description="images shown of each")] = 5,
        false_reject: Annotated[str, _RATE] = "",
    ) -> Response:
        """Why images were named or rejected: heat map, nearest training images, score and threshold."""
        rate = _read_rate(false_reject)
        decoded = await read_images(request)
        if format == "png" and len(decoded.kept) != 1:
            raise HTTPError(422, f"format=png shows one image, not {len(decoded.kept)}; use html or json")
        deadline = get_context(request.scope).deadline
        found = await deadline.wait(service.explain(decoded.image_set(), classes, neighbours, rate))
        if format == "png":
            return Response(await run_in_helper(lambda: explanation_png(found[0])), media_type="image/png")
        if format == "html":
            return HTMLResponse(await run_in_helper(lambda: explanation_html(found, "Why")))
        rows = await run_in_helper(lambda: [_explanation_row(one) for one in found])
        return _json({"images": _add_errors(decoded, rows)})

    @router.post(
        "/v1/discover",
        tags=["ask"],
        response_model=schema.Groups,
        responses=_ERRORS,
        openapi_extra=schema.form_body(single=False),
    )
    async def discover(
        request: Request,
        min_size: Annotated[int, Query(ge=2, le=1000, description="images of the smallest group")] = 5,
    ) -> Response:
        """Group the images that are unknown: candidates for new classes."""
        decoded = await read_images(request)
        deadline = get_context(request.scope).deadline
        found = await deadline.wait(service.discover(decoded.image_set(), min_size))
        sent = decoded.kept  # positions in the request
        groups = [
            {"members": [sent[i] for i in g.members], "cohesion": round(g.cohesion, 4), "nearest": g.nearest}
            for g in found.groups
        ]
        left_over, accepted = ([sent[i] for i in some] for some in (found.left_over, found.accepted))
        answer = {"groups": groups, "left_over": left_over, "accepted": accepted}
        return _json(answer | {"unreadable": sorted(decoded.errors)})

    @router.post(
        "/v1/enroll",
        tags=["change"],
        response_model=schema.Taught,
        responses=_CHANGE_ERRORS,
        openapi_extra=schema.form_body(
            single=False,
            name={"type": "string", "description": "what the class is called"},
            add={"type": "boolean", "default": False, "description": "add to a class that is there"},
        )
        | {"security": [{"token": []}]},
    )
    async def enroll(request: Request) -> Response:
        """Teach the model a class from a few images, without training. All images are used, or none."""
        service.token.check_header(request.headers.get("authorization"))
        form, context = await read_form(request), get_context(request.scope)
        name, add = _get_text(form, "name"), _get_flag(form, "add")
        decoded = await context.deadline.wait(service.decode(lambda: form.uploads, context))
        images = decoded.require_all().image_set()
        # A change that has begun is waited for: a 503 would say that the model was not changed.
        change = await context.deadline.wait(service.enroll(name, images, add), finish=True)
        return _json(change.to_dict())

    @router.post(
        "/v1/forget",
        tags=["change"],
        response_model=schema.Taught,
        responses=_CHANGE_ERRORS,
        openapi_extra={"security": [{"token": []}]},
    )
    async def forget(
        request: Request, name: Annotated[str, Query(max_length=100, description="the class")]
    ) -> Response:
        """Make the model forget a class."""
        service.token.check_header(request.headers.get("authorization"))
        change = await get_context(request.scope).deadline.wait(service.forget(name), finish=True)
        return _json(change.to_dict())

    @router.get("/v1/drift", tags=["ask"], response_model=schema.Drift)
    async def drift() -> Response:
        """Whether the images that were accepted still look like the known ones."""
        return _json(await run_in_helper(service.drift))

    @router.get("/livez", tags=["server"], response_model=schema.Alive, responses=_NOT_WELL)
    async def livez() -> Response:
        """Whether this process works; 503 if only a restart would help."""
        broken = service.broken
        return _json({"status": broken or "ok"}, 503 if broken else 200)

    @router.get("/readyz", tags=["server"], response_model=schema.Health, responses=_NOT_WELL)
    @router.get("/healthz", tags=["server"], response_model=schema.Health, responses=_NOT_WELL)
    async def readyz() -> Response:
        """Whether images are answered, and with which model; 503 if not.

        `degraded`: they are, but with the model of before, for the file on disk cannot be used (`problem`).
        """
        served, problem = service.live.current, service.live.problem
        unwell = service.broken or ("shutting down" if service.closing else "")
        about = {
            "status": unwell or ("degraded" if problem else "ok"),
            "classes": len(served.recognizer.class_names),
            "model": served.number,
            "problem": problem,
        }
        return _json(about, 503 if unwell else 200)

    @router.get("/metrics", tags=["server"], response_class=Response)
    async def metrics() -> Response:
        """Counts and times in the text format of Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


class FastPredict:
    """ASGI middleware that answers POST /v1/predict before the framework; the body has been read already.

    FastAPI takes about a millisecond per request of the one thread that serves all connections: longer than
    a small network takes per image. The endpoint is declared and documented above like the others, and
    computed by the same function.
    """

    def __init__(self, app: App, service: ModelService) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PREDICT or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = (await receive())["body"]
        found = [value for key, value in scope["headers"] if key == b"content-type"]
        content_type = found[0].decode("latin-1") if found else ""
        try:
            sent = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            rate = _read_rate(sent.get("false_reject", [""])[-1])
            answer = await predict_body(self._service, body, content_type, get_context(scope), rate)
        except UserError as error:
            raise HTTPError(422, str(error)) from error
        await send_json(send, 200, answer)


async def predict_body(
    service: ModelService,
    body: bytes,
    content_type: str,
    context: RequestContext,
    false_reject: float | None = None,
) -> bytes:
    """Return the response of /v1/predict, as JSON; at another rate than the model's if one is given."""
    decoded = await _decode_body(service, body, content_type, context)
    predictions = await context.deadline.wait(service.predict(decoded.images))
    if false_reject is not None:
        predictions = predictions.at_rate(false_reject)
    answer = {"images": _add_errors(decoded, predictions.rows()), "model": predictions.model}
    note = predictions.note if false_reject is not None else ""
    return _to_json(answer | ({"note": note} if note else {}))


def _read_rate(text: str) -> float | None:
    """Return the share of known images that may be rejected; None if the request says nothing about it."""
    if not text:
        return None
    try:
        return check_rate(float(text))
    except (ValueError, UserError):
        raise HTTPError(422, f"false_reject must lie between 0 and 1, not {text[:40]!r}") from None


async def _decode_body(
    service: ModelService, body: bytes, content_type: str, context: RequestContext
) -> DecodedImages:
    """Parse and decode in one step of a decoding thread: passing work between threads costs time."""
    work = service.decode(lambda: parse_form(body, content_type).uploads, context)
    return await context.deadline.wait(work)


def _json(content: Any, status: int = 200) -> Response:
    return Response(_to_json(content), status, media_type="application/json")


def _to_json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


def _add_errors(decoded: DecodedImages, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per image that was sent, in that order: its row, or why it could not be read."""
    readable = dict(zip(decoded.kept, rows, strict=True))
    return [
        {"file": name} | (readable[i] if i in readable else {"error": decoded.errors[i]})
        for i, name in enumerate(decoded.names)
    ]


def _explanation_row(explanation: Explanation) -> dict[str, Any]:
    row = explanation.to_dict()
    for unneeded in ("source", "heat"):
        del row[unneeded]
    row["verdict"] = verdict(explanation)
    row["heat_map"] = _base64(png(heat_overlay(explanation.image, explanation.heat)))
    for class_row, evidence in zip(row["classes"], explanation.classes, strict=True):
        class_row["neighbours"] = [
            {
                "similarity": near.similarity,
                "source": near.source,
                "picture": None if near.picture is None else _base64(png(near.picture)),
            }
            for near in evidence.neighbours
        ]
    return row


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _get_text(form: Form, name: str) -> str:
    value = form.fields.get(name, "").strip()
    if not value:
        raise HTTPError(422, f"the field '{name}' is missing")
    return value


def _get_flag(form: Form, name: str) -> bool:
    value = form.fields.get(name, "").strip().lower()
    if value not in _YES | _NO:
        raise HTTPError(422, f"the field '{name}' must be true or false, not '{value}'")
    return value in _YES
