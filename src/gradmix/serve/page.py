"""The page: drop images, see what they are taken for and why, name a group of unknown ones, enroll it.

Gradio draws it and carries its events; the desk answers them, under the same limits as the API's. Pictures
come and go inside the events, so nothing is written to disk and no path is ever a client's to choose.
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
from .desk import Desk
from .form import Upload, shown_name
from .page_gate import PAGE
from .refusal import Refusal
from .uploads import Pictures
from .verdicts import Verdicts

# Read when gradio is imported: nothing is to be sent anywhere.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

import gradio as gr
from fastapi import FastAPI

_SECONDS_KEPT = 1800  # of a session that does nothing
_MOST_SESSIONS = 128
_SESSION_BYTES = 256 * 2**20  # of all sessions together
_MOST_WAITING = 8  # events; each may hold an upload's bytes until it is its turn
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
    """What one visitor dropped last, what became of it, and what is chosen."""

    pictures: Pictures
    verdicts: Verdicts
    found: Discovery
    image: int
    group: int | None = None

    def cards(self) -> str:
        names = [self.pictures.names[i] for i in self.pictures.kept]
        errors = [self.pictures.errors[i] for i in sorted(self.pictures.errors)]
        return page_html.cards(self.pictures.images, names, errors, self.verdicts, self.image)

    def groups(self) -> str:
        return page_html.groups(self.found, self.pictures.images, self.group)


class Visits:
    """What happens when a visitor does something: each method returns new values for parts of the page."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._turns = itertools.count(1)

    def header(self) -> str:
        return page_html.header(self._desk.live.current.recognizer)

    def zone(self) -> str:
        return page_html.drop_zone(self._desk.limits, next(self._turns))

    def drop(self, event: gr.EventData) -> tuple[Any, ...]:
        """Images: what they are taken for, the first unknown one explained, the unknown ones in groups."""
        return self._shown(self._looked_at(self._desk.read(_uploads(event._data))))

    def choose_image(self, session: Session | None, event: gr.EventData) -> tuple[Any, ...]:
        """One of the cards: why."""
        session = _present(session)
        session = replace(session, image=_index(event._data, len(session.pictures.images)))
        return session, self._why(session), ""

    def choose_group(self, session: Session | None, event: gr.EventData) -> tuple[Any, ...]:
        """One of the groups, to be named."""
        session = _present(session)
        session = replace(session, group=_index(event._data, len(page_html.members_of(session.found))))
        return session, ""

    def enroll(self, session: Session | None, name: object, token: object) -> tuple[Any, ...]:
        """The chosen group as a class; then all images are looked at again, by the model that knows it."""
        self._desk.guard.check(str(token or "").strip() or None)
        session = _present(session)
        if session.group is None:
            raise Refusal(422, "choose a group of unknown images first")
        wanted = str(name or "").strip()
        if not wanted:
            raise Refusal(422, "say what the group is: a class needs a name")
        members = page_html.members_of(session.found)[session.group]
        images = session.pictures.image_set().select(members)
        changed = self._desk.enroll(wanted, images).result(_SECONDS_TO_ANSWER)
        told = f"The model knows '{changed.name}' now; it has {changed.images} images of it. {changed.note}"
        return self._shown(self._looked_at(session.pictures), told)

    def _looked_at(self, pictures: Pictures) -> Session:
        verdicts = self._desk.predict(pictures.images)
        found = self._desk.discover(pictures.image_set(), _SMALLEST_GROUP).result(_SECONDS_TO_ANSWER)
        unknown = page_html.members_of(found)
        first = min(min(members) for members in unknown) if unknown else 0
        group = 0 if unknown else None
        return Session(pictures, verdicts.result(_SECONDS_TO_ANSWER), found, first, group)

    def _why(self, session: Session) -> str:
        one = session.pictures.image_set().select([session.image])
        return page_html.why(self._desk.explain(one, neighbours=4).result(_SECONDS_TO_ANSWER)[0])

    def _shown(self, session: Session, told: str = "") -> tuple[Any, ...]:
        """Of everything: session, header, zone, cards, why, groups, naming form, name, two messages."""
        pictures = session.cards(), self._why(session), session.groups()
        naming = gr.update(visible=session.group is not None)
        return session, self.header(), self.zone(), *pictures, naming, "", "", page_html.message(told)


def mount_page(app: FastAPI, desk: Desk) -> None:
    """The page at /ui of ``app``."""
    gr.mount_gradio_app(
        app,
        _blocks(desk),
        path=PAGE,
        footer_links=[],
        run_history=False,
        show_error=True,
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        pwa=False,
        max_file_size=0,
        theme=_theme(),
        css=_text("page.css"),
    )


def _blocks(desk: Desk) -> Any:
    visits = Visits(desk)
    with gr.Blocks(title="gradmix", analytics_enabled=False) as blocks:
        session = gr.State(None, time_to_live=_SECONDS_KEPT)
        header = gr.HTML(visits.header())
        zone = gr.HTML(visits.zone(), js_on_load=_text("page.js"), elem_id="drop")
        refused = gr.HTML("", elem_id="refused")
        with gr.Row():
            with gr.Column(scale=3, min_width=360):
                cards = gr.HTML("", js_on_load=_CHOOSE, elem_id="cards")
            with gr.Column(scale=2, min_width=300):
                why = gr.HTML("", elem_id="why")
        groups = gr.HTML("", js_on_load=_CHOOSE, elem_id="groups")
        with gr.Row(visible=False, elem_id="naming") as naming:
            name = gr.Textbox(label="What is it?", placeholder="a name", max_length=100, elem_id="name")
            token = gr.Textbox(label="Token", type="password", visible=desk.guard.closed, elem_id="token")
            teach = gr.Button("Teach the model", variant="primary", elem_id="teach")
        told = gr.HTML("", elem_id="told")
        everything = [session, header, zone, cards, why, groups, naming, name, refused, told]
        quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        # Past the queue: Gradio ends a visitor's stream with his last event, and one that joins just then was
        # seen to get no answer.
        blocks.load(visits.header, None, header, queue=False, **quiet)
        drop = _refusing(visits.drop, len(everything), 8, anew={2: visits.zone})
        zone.upload(drop, None, everything, **quiet)
        cards.select(_refusing(visits.choose_image, 3, 2), session, [session, why, refused], **quiet)
        groups.select(_refusing(visits.choose_group, 2, 1), session, [session, told], **quiet)
        enroll = _refusing(visits.enroll, len(everything), 9)
        for event in (teach.click, name.submit):
            event(enroll, [session, name, token], everything, **quiet)
    blocks.state_session_capacity = _sessions(desk)
    blocks.queue(max_size=_MOST_WAITING, default_concurrency_limit=4, api_open=False)
    return blocks


def _sessions(desk: Desk) -> int:
    """How many visitors' images are kept; of more, those of the longest silent one are dropped."""
    wanted = desk.live.current.wanted
    largest = desk.limits.images * wanted.channels * wanted.size**2
    return max(4, min(_MOST_SESSIONS, _SESSION_BYTES // largest))


def _refusing(
    act: Callable[..., Any], outputs: int, place: int, anew: dict[int, Callable[[], str]] | None = None
) -> Callable[..., Any]:
    """``act``; if refused, all stays as it is but for the reason at ``place`` and what is drawn ``anew``."""

    @functools.wraps(act)
    def acting(*args: Any) -> Any:
        try:
            return act(*args)
        except (Refusal, UserError) as reason:
            values: list[Any] = [gr.skip()] * outputs
            values[place] = page_html.message(str(reason), bad=True)
            for i, draw in (anew or {}).items():
                values[i] = draw()
            return tuple(values)

    return acting


def _present(session: Session | None) -> Session:
    if session is None:
        raise Refusal(422, "the images are gone: the page was idle for long; drop them again")
    return session


def _uploads(data: Any) -> list[Upload]:
    """The files of a drop event: a list of {name, data}, data in base64."""
    files = data.get("files") if isinstance(data, dict) else None
    if not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        raise Refusal(422, "the event holds no files")
    found = []
    for i, file in enumerate(files, start=1):
        try:
            content = base64.b64decode(str(file.get("data", "")), validate=True)
        except ValueError:  # binascii's own, or that of text that is not ASCII
            raise Refusal(422, f"file {i} is not base64") from None
        found.append(Upload(shown_name(str(file.get("name", "")), f"image {i}"), content))
    return found


def _index(data: Any, count: int) -> int:
    index = data.get("index") if isinstance(data, dict) else None
    if not isinstance(index, int) or not 0 <= index < count:
        raise Refusal(422, "there is no such image any more; drop it again")
    return index


def _theme() -> Any:
    """Fonts that the visitor's system has: none is fetched."""
    return gr.themes.Default(
        primary_hue="blue",
        neutral_hue="slate",
        font=["ui-sans-serif", "system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )


def _text(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
