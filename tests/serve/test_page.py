"""The page without a browser: what its events do, what it shows, and which doors of Gradio are closed."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gradmix.recognition import load, update_model
from gradmix.serve.desk import Desk
from gradmix.serve.limits import Limits
from gradmix.serve.page import Visits, _blocks
from gradmix.serve.page_gate import check_page_body, check_page_path
from gradmix.serve.page_html import header, message
from gradmix.serve.refusal import Refusal
from tests.serve.conftest import TOKEN, png_of
from tests.training.tiny import CLASSES, tiny_images

SESSION, HEADER, ZONE, CARDS, WHY, GROUPS, NAMING, NAME, REFUSED, TOLD = range(10)


@pytest.fixture
def visits(model: Path) -> Iterator[Visits]:
    desk = Desk(model, Limits(images=20), TOKEN)
    yield Visits(desk)
    desk.close()


def dropped(*contents: bytes) -> Any:
    files = [{"name": f"{i}.png", "data": base64.b64encode(c).decode()} for i, c in enumerate(contents)]
    return SimpleNamespace(_data={"files": files})


def chosen(index: object) -> Any:
    return SimpleNamespace(_data={"index": index})


def test_a_visit(visits: Visits, model: Path) -> None:
    crosses = [png_of("cross", i) for i in range(12)]
    shown = visits.drop(dropped(png_of("bar"), *crosses, b"no image"))
    session = shown[SESSION]
    assert shown[CARDS].count('class="card known"') + shown[CARDS].count('class="card unknown"') == 13
    assert "13.png is not an image in a known format" in shown[CARDS]
    assert 'class="heat"' in shown[WHY]
    _, why, _ = visits.choose_image(session, chosen(0))
    assert "0.png" in why
    assert "The nearest images it knows" in why
    unknown = [i for i, row in enumerate(session.verdicts.rows()) if not row["known"]]
    assert unknown, "the model must reject some of the crosses for this test"
    last = len(session.found.groups) + bool(session.found.left_over) - 1
    session, _ = visits.choose_group(session, chosen(last))
    shown = visits.enroll(session, " cross ", TOKEN)
    assert "The model knows &#x27;cross&#x27; now" in shown[TOLD]
    assert '<span class="chip taught">cross</span>' in shown[HEADER]
    assert load(model).class_names == (*CLASSES, "cross")
    assert "cross" in [row["label"] for row in shown[SESSION].verdicts.rows()]


def test_teaching_needs_the_token_a_group_and_a_name(visits: Visits, model: Path) -> None:
    before = model.read_bytes()
    session = visits.drop(dropped(*[png_of("cross", i) for i in range(6)]))[SESSION]
    for token in ("", None, "wrong-token", ["x"]):
        with pytest.raises(Refusal, match="token"):
            visits.enroll(session, "cross", token)
    with pytest.raises(Refusal, match="drop them again"):
        visits.enroll(None, "cross", TOKEN)
    with pytest.raises(Refusal, match="needs a name"):
        visits.enroll(session, "  ", TOKEN)
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
def test_drops_that_are_refused(visits: Visits, data: object) -> None:
    with pytest.raises(Refusal):
        visits.drop(SimpleNamespace(_data=data))  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [None, -1, 1, "0", 1.5])
def test_choices_that_are_refused(visits: Visits, index: object) -> None:
    session = visits.drop(dropped(png_of("bar")))[SESSION]
    with pytest.raises(Refusal):
        visits.choose_image(session, chosen(index))


def test_texts_are_escaped(model: Path) -> None:
    update_model(model, lambda known: known.enrolled("<img src=x onerror=y>", tiny_images(3, ("cross",), 3)))
    assert "<img" not in header(load(model))
    assert "<b>" not in message("<b>bold</b>")


@pytest.mark.parametrize(
    "path",
    [
        "/ui/gradio_api/file=/etc/passwd",
        "/ui/file=/etc/passwd",
        "/ui/gradio_api/file/etc/passwd",
        "/ui/gradio_api/proxy=http://169.254.169.254/",
        "/ui/gradio_api/upload",
        "/ui/gradio_api/run/drop",
        "/ui/gradio_api/api/predict",
        "/ui/gradio_api/call/drop",
        "/ui/gradio_api/component_server",
        "/ui/gradio_api/vibe-edit/",
        "/ui/gradio_api/run-history/connect",
        "/ui/login",
        "/ui/monitoring",
        "/ui/assets/../../etc/passwd",
        "/ui/static/..%2f..%2fetc/passwd",
        "/ui/queue/join",
    ],
)
def test_closed_doors(path: str) -> None:
    with pytest.raises(Refusal) as refused:
        check_page_path(path)
    assert refused.value.status == 404


@pytest.mark.parametrize(
    "path", ["/ui", "/ui/", "/ui/config", "/ui/assets/index-a_b.js", "/v1/predict", "/uix"]
)
def test_open_doors(path: str) -> None:
    check_page_path(path)


@pytest.mark.parametrize(
    "event",
    [
        {"data": [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}]},
        {"data": [None, [{"p": {"url": "http://169.254.169.254/"}}]]},
        {"event_data": {"files": [{"path": "x"}]}},
        ["x"],
        "x",
    ],
)
@pytest.mark.parametrize("path", ["/ui/gradio_api/queue/join", "/ui/gradio_api/run/predict"])
def test_events_name_no_files(event: object, path: str) -> None:
    with pytest.raises(Refusal):
        check_page_body(path, json.dumps(event).encode())


def test_events_of_no_sense() -> None:
    for body in (b"", b"{", b"[" * 100_000, b'{"a":' * 50 + b"1" + b"}" * 50, b"\xff"):
        with pytest.raises(Refusal):
            check_page_body("/ui/gradio_api/queue/join", body)
    check_page_body(
        "/ui/gradio_api/queue/join", b'{"data": [null], "event_data": {"files": [{"name": "a"}]}}'
    )


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
        desk = Desk(model, None, token)
        boxes = [block for block in _blocks(desk).blocks.values() if block.elem_id == "token"]
        assert [box.visible for box in boxes] == [token is not None]
        desk.close()
