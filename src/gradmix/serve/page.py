"""The page: drop images, see their labels and explanations, name a group of unknown ones, enroll it.

Gradio draws it and transports its events; the service answers them, under the same limits as the API's.
Pictures are sent inside the events, so nothing is written to disk and clients cannot choose a path.
"""

from __future__ import annotations

import base64
import functools
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from ..errors import UserError
from ..recognition import Discovery
from . import page_html
from .guard import PAGE
from .http import HTTPError
from .live_model import BatchPredictions
from .service import ModelService
from .uploads import DecodedImages, Upload, display_name

# Gradio reads these when it is imported; they turn its telemetry off.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

import gradio as gr
from fastapi import FastAPI

_SESSION_SECONDS = 1800  # until an idle session is dropped
_MOST_SESSIONS = 128
_SESSION_BYTES = 256 * 2**20  # of all sessions together
_MOST_WAITING = 8  # events in the queue, each with the bytes of an upload
_SECONDS_TO_ANSWER = 60.0
_SMALLEST_GROUP = 3
_CHOOSE = """element.addEventListener('click', (event) => {
  const chosen = event.target.closest('button[data-index]');
  if (!chosen) return;
  for (const one of element.querySelectorAll('button[data-index]'))
    one.setAttribute('aria-pressed', one === chosen);
  trigger('select', {index: Number(chosen.dataset.index)});
});"""


@dataclass(frozen=True, eq=False)
class Session:
    """What one visitor dropped last, its predictions and groups, and what is chosen."""

    decoded: DecodedImages
    predictions: BatchPredictions
    found: Discovery
    image: int
    group: int | None = None

    def cards(self) -> str:
        names = [self.decoded.names[i] for i in self.decoded.kept]
        errors = [self.decoded.errors[i] for i in sorted(self.decoded.errors)]
        return page_html.cards(self.decoded.images, names, errors, self.predictions, self.image)

    def groups(self) -> str:
        return page_html.groups(self.found, self.decoded.images, self.group)


class PageEvents:
    """The handlers of the page's events; each returns new values for parts of the page."""

    def __init__(self, service: ModelService) -> None:
        self._service = service
        self._turns = itertools.count(1)

    def header(self) -> str:
        return page_html.header(self._service.live.current.recognizer)

    def zone(self) -> str:
        return page_html.drop_zone(self._service.limits, next(self._turns))

    def drop(self, event: gr.EventData, request: gr.Request | None = None) -> tuple[Any, ...]:
        """Predict dropped images, explain the first unknown one, and group the unknown ones."""
        context = self._service.new_context(_client_address(request))
        work = self._service.decode(lambda: _parse_uploads(event._data), context)
        return self._render(self._analyze(context.deadline.wait_in_thread(work)))

    def choose_image(self, session: Session | None, event: gr.EventData) -> tuple[Any, ...]:
        """Explain the image of the chosen card."""
        session = _require_session(session)
        session = replace(session, image=_parse_index(event._data, len(session.decoded.images)))
        return session, self._explain(session), ""

    def choose_group(self, session: Session | None, event: gr.EventData) -> tuple[Any, ...]:
        """Choose the group to be named."""
        session = _require_session(session)
        count = len(page_html.members_of(session.found))
        return replace(session, group=_parse_index(event._data, count)), ""

    def enroll(self, session: Session | None, name: object, token: object) -> tuple[Any, ...]:
        """Enroll the chosen group as a class, then predict all images again with the changed model."""
        self._service.token.check(str(token or "").strip() or None)
        session = _require_session(session)
        if session.group is None:
            raise HTTPError(422, "choose a group of unknown images first")
        wanted = str(name or "").strip()
        if not wanted:
            raise HTTPError(422, "say what the group is: a class needs a name")
        members = page_html.members_of(session.found)[session.group]
        images = session.decoded.image_set().select(members)
        change = self._service.enroll(wanted, images).result(_SECONDS_TO_ANSWER)
        text = f"The model knows '{change.name}' now; it has {change.images} images of it. {change.note}"
        return self._render(self._analyze(session.decoded), text)

    def _analyze(self, decoded: DecodedImages) -> Session:
        predictions = self._service.predict(decoded.images)
        found = self._service.discover(decoded.image_set(), _SMALLEST_GROUP).result(_SECONDS_TO_ANSWER)
        unknown = page_html.members_of(found)
        first = min(min(members) for members in unknown) if unknown else 0
        group = 0 if unknown else None
        return Session(decoded, predictions.result(_SECONDS_TO_ANSWER), found, first, group)

    def _explain(self, session: Session) -> str:
        one = session.decoded.image_set().select([session.image])
        return page_html.why(self._service.explain(one, neighbours=4).result(_SECONDS_TO_ANSWER)[0])

    def _render(self, session: Session, text: str = "") -> tuple[Any, ...]:
        """Return all parts: session, header, zone, cards, why, groups, naming form, name, two messages."""
        parts = session.cards(), self._explain(session), session.groups()
        naming = gr.update(visible=session.group is not None)
        return session, self.header(), self.zone(), *parts, naming, "", "", page_html.message(text)


def mount_page(app: FastAPI, service: ModelService) -> dict[int, int]:
    """Add the page to ``app``, at /ui; return how many inputs each of its events has, by its number."""
    blocks = build_page(service)
    gr.mount_gradio_app(
        app,
        blocks,
        path=PAGE,
        footer_links=[],
        run_history=False,
        show_error=True,
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        pwa=False,
        max_file_size=0,
        theme=_make_theme(),
        css=_read_text("page.css"),
    )
    return {number: len(event.inputs) for number, event in blocks.fns.items()}


def build_page(service: ModelService) -> Any:
    """Return the page as Gradio blocks, with its events connected."""
    events = PageEvents(service)
    with gr.Blocks(title="gradmix", analytics_enabled=False) as blocks:
        session = gr.State(None, time_to_live=_SESSION_SECONDS)
        header = gr.HTML(events.header())
        zone = gr.HTML(events.zone(), js_on_load=_read_text("page.js"), elem_id="drop")
        refused = gr.HTML("", elem_id="refused")
        with gr.Row():
            with gr.Column(scale=3, min_width=360):
                cards = gr.HTML("", js_on_load=_CHOOSE, elem_id="cards")
            with gr.Column(scale=2, min_width=300):
                why = gr.HTML("", elem_id="why")
        groups = gr.HTML("", js_on_load=_CHOOSE, elem_id="groups")
        with gr.Row(visible=False, elem_id="naming") as naming:
            name = gr.Textbox(label="What is it?", placeholder="a name", max_length=100, elem_id="name")
            token = gr.Textbox(
                label="Token", type="password", visible=service.token.required, elem_id="token"
            )
            teach = gr.Button("Teach the model", variant="primary", elem_id="teach")
        message = gr.HTML("", elem_id="told")
        everything = [session, header, zone, cards, why, groups, naming, name, refused, message]
        quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        # Not queued: Gradio ends a visitor's stream with the last event, and an event that joins at that
        # moment sometimes got no answer.
        blocks.load(events.header, None, header, queue=False, **quiet)
        drop = _show_errors(events.drop, len(everything), 8, redraw={2: events.zone})
        zone.upload(drop, None, everything, **quiet)
        cards.select(_show_errors(events.choose_image, 3, 2), session, [session, why, refused], **quiet)
        groups.select(_show_errors(events.choose_group, 2, 1), session, [session, message], **quiet)
        enroll = _show_errors(events.enroll, len(everything), 9)
        for listen in (teach.click, name.submit):
            listen(enroll, [session, name, token], everything, **quiet)
    blocks.state_session_capacity = _most_sessions(service)
    blocks.queue(max_size=_MOST_WAITING, default_concurrency_limit=4, api_open=False)
    return blocks


def _most_sessions(service: ModelService) -> int:
    """Return how many sessions are kept; beyond that, the one that was idle longest is dropped."""
    wanted = service.live.current.wanted
    largest = service.limits.images * wanted.channels * wanted.size**2
    return max(4, min(_MOST_SESSIONS, _SESSION_BYTES // largest))


def _show_errors(
    handler: Callable[..., Any],
    outputs: int,
    message: int,
    redraw: dict[int, Callable[[], str]] | None = None,
) -> Callable[..., Any]:
    """Return ``handler`` which on an error changes only output ``message`` and those of ``redraw``."""

    @functools.wraps(handler)
    def handle(*args: Any) -> Any:
        try:
            return handler(*args)
        except (HTTPError, UserError) as reason:
            values: list[Any] = [gr.skip()] * outputs
            values[message] = page_html.message(str(reason), bad=True)
            for i, draw in (redraw or {}).items():
                values[i] = draw()
            return tuple(values)

    return handle


def _require_session(session: Session | None) -> Session:
    if session is None:
        raise HTTPError(422, "the images are gone: the page was idle for long; drop them again")
    return session


def _parse_uploads(data: Any) -> list[Upload]:
    """Return the files of a drop event: a list of {name, data}, data in base64."""
    files = data.get("files") if isinstance(data, dict) else None
    if not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        raise HTTPError(422, "the event holds no files")
    found = []
    for i, file in enumerate(files, start=1):
        try:
            content = base64.b64decode(str(file.get("data", "")), validate=True)
        except ValueError:  # binascii.Error, or text that is not ASCII
            raise HTTPError(422, f"file {i} is not base64") from None
        found.append(Upload(display_name(str(file.get("name", "")), f"image {i}"), content))
    return found


def _client_address(request: Any) -> str:
    """Return the address of the client, by which pixels are limited."""
    client = getattr(request, "client", None)
    return str(getattr(client, "host", None) or "")


def _parse_index(data: Any, count: int) -> int:
    index = data.get("index") if isinstance(data, dict) else None
    if not isinstance(index, int) or not 0 <= index < count:
        raise HTTPError(422, "there is no such image any more; drop it again")
    return index


def _make_theme() -> Any:
    """Return a theme with fonts of the visitor's system, so that none is fetched."""
    return gr.themes.Default(
        primary_hue="blue",
        neutral_hue="slate",
        font=["ui-sans-serif", "system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )


def _read_text(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
