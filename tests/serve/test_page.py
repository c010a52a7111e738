"""The page without a browser: what its events do, what it shows, and that it connects to no other host."""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gradmix.recognition import load, update_model
from gradmix.serve.http import HTTPError
from gradmix.serve.limits import Limits
from gradmix.serve.page import PageEvents, build_page
from gradmix.serve.page_html import header, message
from gradmix.serve.service import ModelService
from tests.serve.conftest import TOKEN, png_of
from tests.training.tiny import CLASSES, tiny_images

SESSION, HEADER, ZONE, CARDS, WHY, GROUPS, NAMING, NAME, REFUSED, TOLD = range(10)


@pytest.fixture
def events(model: Path) -> Iterator[PageEvents]:
    service = ModelService(model, Limits(images=20), TOKEN)
    yield PageEvents(service)
    service.close()


def dropped(*contents: bytes) -> Any:
    files = [{"name": f"{i}.png", "data": base64.b64encode(c).decode()} for i, c in enumerate(contents)]
    return SimpleNamespace(_data={"files": files})


def chosen(index: object) -> Any:
    return SimpleNamespace(_data={"index": index})


def test_a_visit(events: PageEvents, model: Path) -> None:
    crosses = [png_of("cross", i) for i in range(12)]
    shown = events.drop(dropped(png_of("bar"), *crosses, b"no image"))
    session = shown[SESSION]
    assert shown[CARDS].count('class="card known"') + shown[CARDS].count('class="card unknown"') == 13
    assert "13.png is not an image in a known format" in shown[CARDS]
    assert 'class="heat"' in shown[WHY]
    _, why, _ = events.choose_image(session, chosen(0))
    assert "0.png" in why
    assert "The nearest images it knows" in why
    unknown = [i for i, row in enumerate(session.predictions.rows()) if not row["known"]]
    assert unknown, "the model must reject some of the crosses for this test"
    last = len(session.found.groups) + bool(session.found.left_over) - 1
    session, _ = events.choose_group(session, chosen(last))
    shown = events.enroll(session, " cross ", TOKEN)
    assert "The model knows &#x27;cross&#x27; now" in shown[TOLD]
    assert '<span class="chip taught">cross</span>' in shown[HEADER]
    assert load(model).class_names == (*CLASSES, "cross")
    assert "cross" in [row["label"] for row in shown[SESSION].predictions.rows()]


def test_teaching_needs_the_token_a_group_and_a_name(events: PageEvents, model: Path) -> None:
    before = model.read_bytes()
    session = events.drop(dropped(*[png_of("cross", i) for i in range(6)]))[SESSION]
    for token in ("", None, "wrong-token", ["x"]):
        with pytest.raises(HTTPError, match="token"):
            events.enroll(session, "cross", token)
    with pytest.raises(HTTPError, match="drop them again"):
        events.enroll(None, "cross", TOKEN)
    with pytest.raises(HTTPError, match="needs a name"):
        events.enroll(session, "  ", TOKEN)
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"files": "x"},
        {"files": ["x"]},
        {"files": [{"name": "a", "data": "no base64!"}]},
        {"files": [{"name": "a", "data": "ü"}]},
        {"files": [{}]},
        {"files": [{"data": base64.b64encode(b"no image").decode()}]},
        {"files": [{"data": base64.b64encode(png_of("bar")).decode()}] * 21},
        {"files": []},
    ],
)
def test_drops_that_are_refused(events: PageEvents, data: object) -> None:
    with pytest.raises(HTTPError):
        events.drop(SimpleNamespace(_data=data))  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [None, -1, 1, "0", 1.5])
def test_choices_that_are_refused(events: PageEvents, index: object) -> None:
    session = events.drop(dropped(png_of("bar")))[SESSION]
    with pytest.raises(HTTPError):
        events.choose_image(session, chosen(index))


def test_texts_are_escaped(model: Path) -> None:
    update_model(model, lambda known: known.enroll("<img src=x onerror=y>", tiny_images(3, ("cross",), 3)))
    assert "<img" not in header(load(model))
    assert "<b>" not in message("<b>bold</b>")


def test_the_page_is_served_and_asks_for_nothing_elsewhere(
    served: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Building, starting and showing it opens no connection, and no font of another host is named."""

    def no_connection(*args: object, **more: object) -> None:
        raise AssertionError(f"connects to {args[-1]}")

    monkeypatch.setattr(socket.socket, "connect", no_connection)
    monkeypatch.setattr(socket.socket, "connect_ex", no_connection)
    monkeypatch.setattr(socket, "getaddrinfo", no_connection)
    client = served(page=True)
    front = client.get("/")
    assert front.status_code == 200
    assert front.url.path == "/ui/"
    assert "default-src 'self'" in front.headers["content-security-policy"]
    assert client.get("/favicon.ico").headers["content-type"] == "image/svg+xml"
    assert "fonts.googleapis" not in client.get("/ui/theme.css").text
    assert client.get("/ui/gradio_api/file=/etc/passwd").status_code == 404
    assert client.post("/ui/gradio_api/upload", files={"files": b"x"}).status_code == 404


def test_nothing_but_the_header_goes_past_the_queue(served: Callable[..., TestClient]) -> None:
    """What takes time must wait its turn, and be counted among those that wait."""
    client = served(page=True)
    events = client.get("/ui/config").json()["dependencies"]
    direct = [event["id"] for event in events if not event["queue"]]
    assert len(direct) == 1
    for event in events:
        body = {"data": [None] * len(event["inputs"]), "fn_index": event["id"], "session_hash": "a"}
        answer = client.post("/ui/gradio_api/run/predict", json=body)
        assert answer.status_code == (200 if event["id"] in direct else 404)


def test_only_the_token_opens_the_token_box(model: Path) -> None:
    for token in (None, TOKEN):
        service = ModelService(model, None, token)
        boxes = [block for block in build_page(service).blocks.values() if block.elem_id == "token"]
        assert [box.visible for box in boxes] == [token is not None]
        service.close()
