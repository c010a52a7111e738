"""The page without a browser: its files, and the endpoints that only it calls."""

from __future__ import annotations

import base64
import io
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from gradmix.recognition import history, load, save, update_model
from tests.serve.conftest import TOKEN, shapes
from tests.training.tiny import CLASSES

Served = Callable[..., TestClient]


def test_the_page_is_served_and_asks_for_nothing_elsewhere(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Building, starting and showing it opens no connection, and none of its files names another host."""

    def no_connection(*args: object, **more: object) -> None:
        raise AssertionError(f"connects to {args[-1]}")

    monkeypatch.setattr(socket.socket, "connect", no_connection)
    monkeypatch.setattr(socket.socket, "connect_ex", no_connection)
    monkeypatch.setattr(socket, "getaddrinfo", no_connection)
    client = served(page=True, token=TOKEN)
    front = client.get("/")
    assert (front.status_code, front.url.path) == (200, "/ui/")
    policy = front.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "script-src 'self';" in policy  # no inline script runs, whatever gets into the page
    assert 'data-token="true"' in front.text
    assert 'data-most-images="64"' in front.text
    needed = re.findall(r'(?:src|href)="([^"]+)"', front.text)
    assert sorted(needed) == ["icon.svg", "page.css", "page.js"]
    for name in (*needed, "gallery.js"):
        found = client.get(f"/ui/{name}")
        assert found.status_code == 200
        assert not re.search(r"(?:https?:)?//[\w-]+\.\w", found.text.replace("http://www.w3.org/", ""))
        assert "innerHTML" not in found.text  # text of clients is never HTML
    assert client.get("/favicon.ico").headers["content-type"] == "image/svg+xml"


@pytest.mark.parametrize("path", ["nothing", "..%2fpage.py", "page.py", "index.html/x", "page_files"])
def test_there_are_no_other_files(served: Served, path: str) -> None:
    assert served(page=True).get(f"/ui/{path}").status_code == 404


def test_classes_with_their_pictures(served: Served) -> None:
    client = served()
    found = client.get("/v1/classes?pictures=2").json()
    assert [one["name"] for one in found["classes"]] == list(CLASSES)
    assert (found["model"], found["rejects"], found["can_undo"]) == (1, True, False)
    assert found["false_reject"] == 0.1
    for one in found["classes"]:
        assert (one["images"], one["taught"], len(one["pictures"])) == (18, False, 2)
        picture = Image.open(io.BytesIO(base64.b64decode(one["pictures"][0])))
        assert picture.width == picture.height <= 32
    assert client.get("/v1/classes?pictures=51").status_code == 422
    assert client.get("/v1/classes?pictures=0").json()["classes"][0]["pictures"] == []


def test_only_pictures_that_the_model_has(served: Served, model: Path) -> None:
    save(load(model).without_pictures(), model)
    assert {len(one["pictures"]) for one in served().get("/v1/classes").json()["classes"]} == {0}


def names(client: TestClient) -> list[str]:
    return [one["name"] for one in client.get("/v1/classes").json()["classes"]]


def test_undo_takes_back_the_changes_one_by_one(served: Served, model: Path) -> None:
    client, before = served(), model.read_bytes()
    assert client.post("/v1/undo").status_code == 422
    assert client.post("/v1/enroll", data={"name": "cross"}, files=shapes("cross", 3)).status_code == 200
    taught = model.read_bytes()
    assert client.post("/v1/forget?name=bar").status_code == 200
    assert names(client) == ["disc", "square", "cross"]
    assert client.get("/v1/classes").json()["can_undo"]
    answer = client.post("/v1/undo").json()
    assert answer == {"classes": [*CLASSES, "cross"], "can_undo": True}
    assert names(client) == [*CLASSES, "cross"]
    assert model.read_bytes() == taught
    assert client.post("/v1/undo").json() == {"classes": list(CLASSES), "can_undo": False}
    assert names(client) == list(CLASSES)
    assert model.read_bytes() == before
    refusal = client.post("/v1/undo")
    assert (refusal.status_code, refusal.json()["error"]) == (
        422,
        "there is nothing to undo: the last change of the model was not made here",
    )


def test_undo_takes_back_nothing_that_somebody_else_did(served: Served, model: Path) -> None:
    client = served()
    client.post("/v1/enroll", data={"name": "cross"}, files=shapes("cross", 3))
    update_model(model, lambda known: known.forget("cross"))
    now = model.read_bytes()
    assert client.post("/v1/undo").status_code == 422
    assert model.read_bytes() == now


def test_undo_needs_the_token(served: Served) -> None:
    client = served(token=TOKEN)
    assert client.post("/v1/undo").status_code == 401
    right = client.post("/v1/undo", headers={"authorization": f"Bearer {TOKEN}"})
    assert right.status_code == 422


def test_few_files_are_kept_and_none_of_a_change_that_failed(
    served: Served, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = served()
    for i in range(history.MOST_KEPT + 2):
        client.post("/v1/enroll", data={"name": f"cross {i}"}, files=shapes("cross", 1, i))
    assert len(list(model.parent.glob(".*.before-*"))) == history.MOST_KEPT
    now = model.read_bytes()
    assert client.post("/v1/enroll", data={"name": "bar"}, files=shapes("bar", 1)).status_code == 422

    def full(*args: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("gradmix.recognition.model_file.save_file", full)
        assert client.post("/v1/forget?name=bar").status_code == 503
    assert len(list(model.parent.glob(".*.before-*"))) == history.MOST_KEPT
    assert model.read_bytes() == now
    for _ in range(history.MOST_KEPT):
        assert client.post("/v1/undo").status_code == 200
    assert client.post("/v1/undo").status_code == 422


def test_where_there_are_no_links(served: Served, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    client, before = served(), model.read_bytes()
    client.post("/v1/forget?name=bar")
    assert client.post("/v1/undo").status_code == 200
    assert model.read_bytes() == before


def test_a_correction(served: Served) -> None:
    """No, it is a bar: what the page sends, and what it then shows."""
    client = served()
    odd = shapes("cross", 1, 5)
    answer = client.post("/v1/enroll", data={"name": "bar", "add": "true"}, files=odd)
    assert answer.json()["images"] == 19
    assert client.post("/v1/predict", files=odd).json()["images"][0]["label"] == "bar"
