"""The endpoints about what the model knows: its classes with their pictures, and undo."""

from __future__ import annotations

import asyncio
import base64
import secrets
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from ..recognition import Recognizer
from ..report.pictures import png
from . import schema
from .limits import get_context
from .service import ModelService


def make_class_router(service: ModelService) -> APIRouter:
    """Return these endpoints for one served model."""
    router = APIRouter()
    process = secrets.token_hex(8)

    @router.get("/v1/classes", tags=["ask"], response_model=schema.Classes)
    async def classes(
        pictures: Annotated[int, Query(ge=0, le=50, description="small pictures of each class")] = 8,
    ) -> Response:
        """List the classes that the model knows, with small pictures of their images where it has some."""
        served = service.live.current
        threshold = served.recognizer.threshold
        found = await asyncio.get_running_loop().run_in_executor(
            service.helpers, lambda: describe_classes(served.recognizer, pictures)
        )
        about = {
            "model": served.number,
            "state": f"{process}-{served.number}",
            "false_reject": threshold.false_reject,
        }
        about |= {"rejects": threshold.guaranteed, "can_undo": service.live.can_undo}
        return JSONResponse({"classes": found} | about)

    @router.post(
        "/v1/undo",
        tags=["change"],
        response_model=schema.Undone,
        responses={
            401: {"model": schema.Error, "description": "the token is missing or wrong"},
            422: {"model": schema.Error, "description": "there is nothing to undo"},
        },
        openapi_extra={"security": [{"token": []}]},
    )
    async def undo(request: Request) -> Response:
        """Take back the last change of the model that was made here; five in a row can be."""
        service.token.check_header(request.headers.get("authorization"))
        known = await get_context(request.scope).deadline.wait(service.undo(), finish=True)
        return JSONResponse({"classes": list(known.class_names), "can_undo": service.live.can_undo})

    return router


def describe_classes(recognizer: Recognizer, pictures: int) -> list[dict[str, Any]]:
    """Return one dict per class: name, number of images, whether taught, and the newest of its pictures."""
    labels = recognizer.index.state()["labels"]
    shown = recognizer.gallery.pictures
    found = []
    for label, name in enumerate(recognizer.class_names):
        rows = (labels == label).nonzero()[:, 0]
        some = torch.empty(0) if shown is None else shown[rows.flip(0)[:pictures]]
        found.append(
            {
                "name": name,
                "images": len(rows),
                "taught": name in recognizer.enrolled_names,
                "pictures": [base64.b64encode(png(one)).decode("ascii") for one in some],
            }
        )
    return found
