"""The endpoint that is asked all the time, answered in front of the framework.

FastAPI's way to an endpoint takes about a millisecond of the one thread that serves all connections: longer
than a small network takes for an image. /v1/predict needs none of it. It is declared and documented in
:mod:`.api` like the others, and computed by the same function.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from ..errors import UserError
from .api import predicted
from .asgi import App, Receive, Send, send_json
from .desk import Desk
from .refusal import Refusal

PREDICT = "/v1/predict"


class BusyPath:
    """ASGI: answers POST /v1/predict, whose body :class:`.gate.Gate` has read; all else is the app's."""

    def __init__(self, app: App, desk: Desk) -> None:
        self._app = app
        self._desk = desk

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PREDICT or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = (await receive())["body"]
        found = [value for key, value in scope["headers"] if key == b"content-type"]
        content_type = found[0].decode("latin-1") if found else ""
        try:
            answer = await predicted(self._desk, body, content_type)
        except UserError as mistake:
            raise Refusal(422, str(mistake)) from mistake
        await send_json(send, 200, answer)
