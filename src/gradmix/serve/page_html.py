"""The parts of the page as HTML. Every text is escaped here; pictures are included as data URIs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from torch import Tensor

from ..recognition import Discovery, Explanation, Recognizer
from ..report.explanation_page import verdict
from ..report.pictures import heat_overlay, png_data_uri
from .limits import Limits
from .live_model import BatchPredictions

_MOST_TILES = 12


def header(recognizer: Recognizer) -> str:
    """Return the title and the classes that the model knows."""
    enrolled = recognizer.enrolled_names
    chips = [
        f'<span class="chip{" taught" if name in enrolled else ""}">{escape(name)}</span>'
        for name in recognizer.class_names
    ]
    about = (
        "What is none of them it calls <em>unknown</em>, and it can be taught."
        if recognizer.threshold.guaranteed
        else "It has no threshold yet and calls nothing unknown: see <code>gradmix calibrate</code>."
    )
    return _gm(
        "<h1>What is it, and is it known at all?</h1>"
        f'<p class="muted">This model knows {_many(len(chips), "class", "classes")}. {about}</p>'
        f'<div class="chips">{"".join(chips)}</div>'
    )


def drop_zone(limits: Limits, turn: int = 0) -> str:
    """Return the area for dropping images (see page.js); a new ``turn`` makes the browser redraw it."""
    return _gm(
        f'<div class="drop" role="button" tabindex="0" aria-label="Drop images" data-turn="{turn}" '
        f'data-most-bytes="{limits.upload_bytes}" data-most-images="{limits.images}">'
        "<strong>Drop images here, or click to choose</strong>"
        f'<p class="muted drop-note">up to {limits.images} at once; they go to this server, nowhere else</p>'
        '<input type="file" multiple accept="image/*"></div>'
    )


def cards(
    images: Tensor,
    names: Sequence[str],
    errors: Sequence[str],
    predictions: BatchPredictions,
    chosen: int | None,
) -> str:
    """Return one card per image with its label; ``errors`` are of the images that could not be read."""
    rows = predictions.rows()
    known = predictions.count_known()
    parts = [
        _card(i, png_data_uri(images[i], smallest=96), names[i], row, i == chosen)
        for i, row in enumerate(rows)
    ]
    parts += [f'<div class="card bad">{escape(error)}</div>' for error in errors]
    counts = f"{known} known, {len(rows) - known} unknown"
    return _gm(f'<h2 class="told">{counts}</h2><div class="cards">{"".join(parts)}</div>')


def why(explanation: Explanation) -> str:
    """Return the explanation of one image: verdict, heat map, threshold and neighbours."""
    e = explanation
    evidence = "".join(
        f'<div class="row"><div><div class="who">{escape(c.name)}</div>'
        f'<div class="muted">{c.similarity:.2f} alike</div></div><div class="strip">'
        + "".join(_tile(near.picture, near.source, f"{near.similarity:.2f}") for near in c.neighbours)
        + "</div></div>"
        for c in e.classes
    )
    state = "known" if e.known else "unknown"
    heated = png_data_uri(heat_overlay(e.image, e.heat))
    return _gm(
        f'<div class="why"><p class="verdict {state}">{escape(verdict(e))}</p>'
        f'<div class="pair"><figure><img alt="the image" src="{png_data_uri(e.image)}">'
        f"<figcaption>{escape(e.source)}</figcaption></figure>"
        f'<figure><img class="heat" alt="heat map" src="{heated}">'
        f"<figcaption>where it looked</figcaption></figure></div>{_scale(e)}"
        f'<h2>The nearest images it knows</h2><div class="evidence">{evidence}</div></div>'
    )


def groups(found: Discovery, images: Tensor, chosen: int | None) -> str:
    """Return the unknown images in groups, one of which may be chosen."""
    if not found.groups and not found.left_over:
        return _gm('<p class="muted">No unknown images here.</p>')
    parts = []
    for number, members in enumerate(members_of(found)):
        tiles = "".join(_tile(images[i], "", "") for i in members[:_MOST_TILES])
        more = f"and {len(members) - _MOST_TILES} more" if len(members) > _MOST_TILES else ""
        if number < len(found.groups):
            what, about = f"Group {number + 1}", f"{found.groups[number].cohesion:.2f} alike"
        else:
            what, about = "In no group", "each like no other"
        parts.append(
            f'<button type="button" class="group" data-index="{number}" '
            f'aria-pressed="{_yes(number == chosen)}">'
            f'<div><div class="who"><b>{what}</b></div><div class="muted">'
            f"{_many(len(members), 'image', 'images')}<br>{about}</div></div>"
            f'<div class="strip">{tiles}<span class="muted">{more}</span></div></button>'
        )
    return _gm(
        "<h2>Unknown images that look alike</h2>"
        '<p class="muted">Choose a group, say what it is, and the model knows it from then on.</p>'
        f'<div class="groups">{"".join(parts)}</div>'
    )


def members_of(found: Discovery) -> list[tuple[int, ...]]:
    """Return the images of each group, and last, if there are any, those in no group."""
    return [group.members for group in found.groups] + ([found.left_over] if found.left_over else [])


def message(text: str, bad: bool = False) -> str:
    """Return a line about what happened."""
    return _gm(f'<p class="message{" bad" if bad else ""}" role="status">{escape(text)}</p>') if text else ""


def _card(i: int, picture: str, name: str, row: dict[str, object], chosen: bool) -> str:
    known = bool(row["known"])
    below = escape(name) if known else f"most like {escape(str(row['nearest']))}"
    return (
        f'<button type="button" class="card {"known" if known else "unknown"}" data-index="{i}" '
        f'aria-pressed="{_yes(chosen)}"><img alt="{escape(name)}" src="{picture}"><div class="text">'
        f'<div class="name">{escape(str(row["label"]))}</div>'
        f'<div class="small">score {row["score"]:.3f}</div>'
        f'<div class="small">{below}</div></div></button>'
    )


def _scale(e: Explanation) -> str:
    """Draw score and threshold on one line, which shows how clear the decision was."""
    if not math.isfinite(e.threshold):
        return ""
    low, high = sorted((e.score, e.threshold))
    room = max(high - low, 1e-6) * 0.6
    score, bound = (100 * (v - low + room) / (high - low + 2 * room) for v in (e.score, e.threshold))
    return (
        f'<div class="scale" style="--bound: {bound:.1f}%"><i class="line" style="left: {bound:.1f}%"></i>'
        f'<i style="left: {score:.1f}%"></i>'
        f'<span class="above" style="left: {score:.1f}%">score {e.score:.3f}</span>'
        f'<span class="below" style="left: {bound:.1f}%">threshold {e.threshold:.3f}</span></div>'
    )


def _tile(picture: Tensor | None, title: str, below: str) -> str:
    if picture is None:
        return f'<div class="tile"><div class="none">{escape(title)}</div>{below}</div>'
    shown = png_data_uri(picture, smallest=56)
    return f'<div class="tile" title="{escape(title)}"><img alt="" src="{shown}">{below}</div>'


def _gm(content: str) -> str:
    return f'<div class="gm">{content}</div>'


def _yes(flag: bool) -> str:
    return "true" if flag else "false"


def _many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"
