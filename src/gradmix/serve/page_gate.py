"""Which of Gradio's many routes the page needs; all others are closed.

Among those closed: files by path, proxying to other hosts, uploads to a temporary folder. The page sends
its images inside its own events (see page.js), and no value that Gradio would take for a file on the
server, or for an address to fetch one from, is let through.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .refusal import Refusal

PAGE = "/ui"
_API = f"{PAGE}/gradio_api"
_EVENTS = (f"{_API}/queue/join", f"{_API}/run/predict")  # the second for the one event that does not queue
_STREAMS = re.compile(rf"{_API}/(queue/data|heartbeat/\w+)")
_OPEN = re.compile(
    rf"{PAGE}(/?|/config|/theme\.css|/manifest\.json|/favicon\.ico|/(assets|static|svelte)/[\w./@+-]+)"
    rf"|{_API}/(queue/join|run/predict|startup-events|info|app_id|theme\.css)"
)
_MOST_DEEP = 12


def is_page(path: str) -> bool:
    return path == PAGE or path.startswith(PAGE + "/")


def is_page_stream(path: str) -> bool:
    """Whether the answer lasts as long as the page is open."""
    return bool(_STREAMS.fullmatch(path))


def check_page_path(path: str) -> None:
    """Refuse the parts of Gradio that the page does not use; other paths are not this file's business."""
    if is_page(path) and (".." in path or not (_OPEN.fullmatch(path) or is_page_stream(path))):
        raise Refusal(404, "there is nothing here")


def check_page_body(path: str, body: bytes | bytearray) -> None:
    """Refuse an event of the page that names a file or an address."""
    if path not in _EVENTS:
        return
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "the event is not JSON") from None
    if not isinstance(event, dict) or _names_a_file(event):
        raise Refusal(422, "an event of the page names no files")


def _names_a_file(value: Any, depth: int = 0) -> bool:
    """Whether there is a dict with "path" or "url" in it, as Gradio marks files; or no end of nesting."""
    if depth > _MOST_DEEP:
        return True
    if isinstance(value, dict):
        return not {"path", "url"}.isdisjoint(value) or any(
            _names_a_file(inner, depth + 1) for inner in value.values()
        )
    return isinstance(value, list) and any(_names_a_file(inner, depth + 1) for inner in value)
