"""The endpoints: read the form, ask the desk, write JSON."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from ..recognition import Explanation
from ..report.explanation_page import explanation_html, explanation_png, verdict
from ..report.pictures import heat_overlay, png
from . import schema
from .desk import Desk
from .form import Form, parse_form
from .refusal import Refusal
from .uploads import Pictures, all_readable

_REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"model": schema.Error, "description": "the request is broken"},
    413: {"model": schema.Error, "description": "too many bytes or images"},
    415: {"model": schema.Error, "description": "neither a form nor an image"},
    422: {"model": schema.Error, "description": "no image can be read, or a parameter is wrong"},
    429: {"model": schema.Error, "description": "too many requests; see Retry-After"},
    503: {"model": schema.Error, "description": "too much work at once; see Retry-After"},
}
_GUARDED = _REFUSED | {
    401: {"model": schema.Error, "description": "the token is missing or wrong"},
    503: {"model": schema.Error, "description": "too much work at once, or the model cannot be written"},
}
_YES, _NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}
T = TypeVar("T")
Format = Literal["json", "png", "html"]


def make_router(desk: Desk) -> APIRouter:
    """The API of one served model."""
    router = APIRouter()

    async def form_of(request: Request) -> Form:
        body, content_type = await request.body(), request.headers.get("content-type", "")
        return await in_decoder(lambda: parse_form(body, content_type))

    async def in_decoder(work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(desk.decoders, work)

    async def pictures_of(request: Request) -> Pictures:
        body, content_type = await request.body(), request.headers.get("content-type", "")
        return await in_decoder(lambda: desk.read(parse_form(body, content_type).uploads))

    @router.post(
        "/v1/predict",
        tags=["ask"],
        response_model=schema.Verdicts,
        responses=_REFUSED,
        openapi_extra=schema.form_body(),
    )
    async def predict(request: Request) -> Response:
        """Name images, or call them unknown. An image that cannot be read has an `error` of its own."""
        body, content_type = await request.body(), request.headers.get("content-type", "")
        return Response(await predicted(desk, body, content_type), media_type="application/json")

    @router.post(
        "/v1/explain",
        tags=["ask"],
        response_model=schema.Explanations,
        responses=_REFUSED,
        openapi_extra=schema.form_body(),
    )
    async def explain(
        request: Request,
        format: Annotated[Format, Query(description="json; png (one image only); html, one page")] = "json",
        classes: Annotated[int, Query(ge=1, le=10, description="nearest classes shown")] = 3,
        neighbours: Annotated[int, Query(ge=1, le=20, description="images shown of each")] = 5,
    ) -> Response:
        """Why images were named or rejected: heat map, nearest training images, score and threshold."""
        pictures = await pictures_of(request)
        if format == "png" and len(pictures.kept) != 1:
            raise Refusal(422, f"format=png shows one image, not {len(pictures.kept)}; use html or json")
        found = await asyncio.wrap_future(desk.explain(pictures.image_set(), classes, neighbours))
        if format == "png":
            return Response(await in_decoder(lambda: explanation_png(found[0])), media_type="image/png")
        if format == "html":
            return HTMLResponse(await in_decoder(lambda: explanation_html(found, "Why")))
        rows = await in_decoder(lambda: [_explained(one) for one in found])
        return _json({"images": _with_errors(pictures, rows)})

    @router.post(
        "/v1/discover",
        tags=["ask"],
        response_model=schema.Groups,
        responses=_REFUSED,
        openapi_extra=schema.form_body(single=False),
    )
    async def discover(
        request: Request,
        min_size: Annotated[int, Query(ge=2, le=1000, description="images of the smallest group")] = 5,
    ) -> Response:
        """Group the images that are unknown: candidates for new classes."""
        pictures = await pictures_of(request)
        found = await asyncio.wrap_future(desk.discover(pictures.image_set(), min_size))
        place = pictures.kept
        groups = [
            {"members": [place[i] for i in g.members], "cohesion": round(g.cohesion, 4), "nearest": g.nearest}
            for g in found.groups
        ]
        left_over, accepted = ([place[i] for i in some] for some in (found.left_over, found.accepted))
        answer = {"groups": groups, "left_over": left_over, "accepted": accepted}
        return _json(answer | {"unreadable": sorted(pictures.errors)})

    @router.post(
        "/v1/enroll",
        tags=["change"],
        response_model=schema.Taught,
        responses=_GUARDED,
        openapi_extra=schema.form_body(
            single=False,
            name={"type": "string", "description": "what the class is called"},
            add={"type": "boolean", "default": False, "description": "add to a class that is there"},
        )
        | {"security": [{"token": []}]},
    )
    async def enroll(request: Request) -> Response:
        """Teach the model a class from a few images, without training. All images are used, or none."""
        desk.guard.check_header(request.headers.get("authorization"))
        form = await form_of(request)
        name, add = _field(form, "name"), _flag(form, "add")
        pictures = await in_decoder(lambda: all_readable(desk.read(form.uploads)))
        changed = await asyncio.wrap_future(desk.enroll(name, pictures.image_set(), add))
        return _json(changed.plain())

    @router.post(
        "/v1/forget",
        tags=["change"],
        response_model=schema.Taught,
        responses=_GUARDED,
        openapi_extra={"security": [{"token": []}]},
    )
    async def forget(
        request: Request, name: Annotated[str, Query(max_length=100, description="the class")]
    ) -> Response:
        """Make the model forget a class."""
        desk.guard.check_header(request.headers.get("authorization"))
        return _json((await asyncio.wrap_future(desk.forget(name))).plain())

    @router.get("/healthz", tags=["server"], response_model=schema.Health)
    async def healthz() -> Response:
        """Whether the server answers, and with what."""
        served = desk.live.current
        about = {"status": "ok", "classes": len(served.recognizer.class_names), "model": served.number}
        return _json(about | {"problem": desk.live.problem})

    @router.get("/metrics", tags=["server"], response_class=Response)
    async def metrics() -> Response:
        """Counts and times in the text format of Prometheus."""
        return Response(desk.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


async def predicted(desk: Desk, body: bytes, content_type: str) -> bytes:
    """The answer of /v1/predict, as JSON."""
    loop = asyncio.get_running_loop()
    # One trip to a decoding thread, for parsing and decoding together, and one to the network's.
    pictures = await loop.run_in_executor(
        desk.decoders, lambda: desk.read(parse_form(body, content_type).uploads)
    )
    verdicts = await asyncio.wrap_future(desk.predict(pictures.images))
    return _bytes({"images": _with_errors(pictures, verdicts.rows()), "model": verdicts.model})


def _json(content: Any) -> Response:
    return Response(_bytes(content), media_type="application/json")


def _bytes(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


def _with_errors(pictures: Pictures, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for every image that was sent, in that order."""
    readable = dict(zip(pictures.kept, rows, strict=True))
    return [
        {"file": name} | (readable[i] if i in readable else {"error": pictures.errors[i]})
        for i, name in enumerate(pictures.names)
    ]


def _explained(explanation: Explanation) -> dict[str, Any]:
    row = explanation.plain()
    for unneeded in ("source", "heat"):
        del row[unneeded]
    row["verdict"] = verdict(explanation)
    row["heat_map"] = _base64(png(heat_overlay(explanation.image, explanation.heat)))
    for told, evidence in zip(row["classes"], explanation.classes, strict=True):
        told["neighbours"] = [
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


def _field(form: Form, name: str) -> str:
    value = form.fields.get(name, "").strip()
    if not value:
        raise Refusal(422, f"the field '{name}' is missing")
    return value


def _flag(form: Form, name: str) -> bool:
    value = form.fields.get(name, "").strip().lower()
    if value not in _YES | _NO:
        raise Refusal(422, f"the field '{name}' must be true or false, not '{value}'")
    return value in _YES
