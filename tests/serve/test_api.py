"""The endpoints: what they answer, and how they refuse."""

from __future__ import annotations

import base64
import errno
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gradmix.recognition import load, update_model
from gradmix.serve.limits import Limits
from tests.data.decoding.damage import damaged_avif
from tests.serve.conftest import ATTACK_SIDE, TOKEN, files, png_of, shapes, webp
from tests.training.tiny import CLASSES, tiny_images

Served = Callable[..., TestClient]
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def refused(response: Any, status: int) -> str:
    """The one line of a refusal with that status."""
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    line: str = response.json()["error"]
    assert line
    assert "\n" not in line
    assert "Traceback" not in line
    return line


def test_predict(served: Served, model: Path) -> None:
    sent = [*shapes("bar", 2), *shapes("disc", 1), *files(b"no image")]
    answer = served().post("/v1/predict", files=sent).json()
    *rows, bad = answer["images"]
    assert answer["model"] == 1
    expected = load(model).read  # the library, from the same bytes
    folder = model.parent / "sent"
    folder.mkdir()
    for i, (_, (_, content, _)) in enumerate(sent[:3]):
        (folder / f"{i}.png").write_bytes(content)
    found = load(model).predict(expected(folder))
    assert [v["label"] for v in rows] == found.names()
    assert [v["score"] for v in rows] == pytest.approx(found.score.tolist(), abs=1e-5)
    columns = {"file", "label", "known", "nearest", "score", "threshold", "p_value", "classes"}
    assert set(rows[0]) == columns
    assert bad == {"file": "0.png", "error": "0.png is not an image in a known format"}


def test_predict_one_image_as_the_body(served: Served) -> None:
    answer = served().post("/v1/predict", content=png_of("bar"), headers={"Content-Type": "image/png"})
    assert [v["nearest"] for v in answer.json()["images"]] == ["bar"]


def test_another_rate_for_one_request(served: Served, model: Path) -> None:
    client, sent = served(), [*shapes("bar", 3), *shapes("cross", 3)]
    for rate in (0.1, 0.5, 0.9):
        answer = client.post(f"/v1/predict?false_reject={rate}", files=sent).json()
        for row in answer["images"]:
            assert row["known"] == (row["p_value"] > rate)
            assert row["label"] == (row["nearest"] if row["known"] else "unknown")
        assert "note" not in answer
    assert len({row["known"] for row in answer["images"]}) == 2 or not answer["images"][0]["known"]
    few = client.post("/v1/predict?false_reject=0.001", files=sent).json()
    assert all(row["known"] for row in few["images"])
    assert "999 would do" in few["note"]
    assert load(model).threshold.false_reject == 0.1
    for wrong in ("0", "1", "-1", "nan", "inf", "ten", "2%00"):
        for path in ("/v1/predict", "/v1/explain"):
            response = client.post(f"{path}?false_reject={wrong}", files=shapes("bar", 1))
            assert "false_reject must lie between 0 and 1" in refused(response, 422)
    one = client.post("/v1/explain?false_reject=0.95", files=shapes("bar", 1)).json()["images"][0]
    assert one["known"] == (one["p_value"] > 0.95)


def test_drift_is_told_and_begins_anew_with_a_new_model(served: Served) -> None:
    client = served()
    before = client.get("/v1/drift").json()
    assert (before["images"], before["log10_odds"], before["alarm"]) == (0, 0.0, False)
    sent = shapes("bar", 20)
    for _ in range(20):
        rows = client.post("/v1/predict", files=sent).json()["images"]
    accepted = [row for row in rows if row["score"] > row["threshold"]]
    found = client.get("/v1/drift").json()
    assert found["images"] == 20 * len(accepted) > 0
    assert found["highest_log10_odds"] >= found["log10_odds"]
    assert found["alarm"] == (found["highest_log10_odds"] >= 2)
    metrics = client.get("/metrics").text
    assert f"gradmix_drift_images {float(found['images'])}" in metrics
    assert f"gradmix_drift_log10_odds {found['log10_odds']}" in metrics
    client.post("/v1/enroll", data={"name": "cross"}, files=shapes("cross", 3))
    assert client.get("/v1/drift").json() == before | {"model": 2}


def test_explain_in_three_formats(served: Served) -> None:
    client = served()
    found = client.post("/v1/explain?neighbours=2&classes=2", files=[*shapes("bar", 1), *files(b"x")]).json()
    one, bad = found["images"]
    assert bad["error"]
    assert one["verdict"].startswith(one["label"])
    assert base64.b64decode(one["heat_map"]).startswith(b"\x89PNG")
    assert [len(c["neighbours"]) for c in one["classes"]] == [2, 2]
    near = one["classes"][0]["neighbours"][0]
    assert base64.b64decode(near["picture"]).startswith(b"\x89PNG")
    assert client.post("/v1/explain?format=png", files=shapes("bar", 1)).content.startswith(b"\x89PNG")
    page = client.post("/v1/explain?format=html", files=shapes("bar", 2))
    assert page.headers["content-type"].startswith("text/html")
    assert "one image, not 2" in refused(client.post("/v1/explain?format=png", files=shapes("bar", 2)), 422)
    assert "format" in refused(client.post("/v1/explain?format=pdf", files=shapes("bar", 1)), 422)
    assert "classes" in refused(client.post("/v1/explain?classes=0", files=shapes("bar", 1)), 422)
    assert "the limit is 16" in refused(client.post("/v1/explain", files=shapes("bar", 17)), 413)


def test_explain_does_not_tell_where_images_lie(served: Served, model: Path) -> None:
    named = tiny_images(3, ("cross",), 3)
    secret = type(named)(named.images, named.labels, named.class_names, ("secret/folder/x.png",) * 3)
    update_model(model, lambda known: known.enroll("cross", secret))
    client = served()
    for form in ("json", "html"):
        told = client.post(f"/v1/explain?format={form}&classes=4", files=shapes("cross", 1)).text
        assert "secret" not in told
    assert "x.png" in client.post("/v1/explain?classes=4", files=shapes("cross", 1)).text


def test_discover_enroll_forget(served: Served, model: Path) -> None:
    client = served()
    groups = client.post("/v1/discover?min_size=2", files=[*shapes("cross", 6), *files(b"x")]).json()
    assert groups["unreadable"] == [6]
    inside = [i for g in groups["groups"] for i in g["members"]]
    assert sorted(inside + groups["left_over"] + groups["accepted"]) == list(range(6))
    taught = client.post("/v1/enroll", data={"name": "cross"}, files=shapes("cross", 5, seed=1)).json()
    assert taught == {"name": "cross", "images": 5, "classes": [*CLASSES, "cross"]}
    assert load(model).class_names == (*CLASSES, "cross")
    again = client.post("/v1/predict", files=shapes("cross", 4, seed=1)).json()
    assert again["model"] == 2
    assert "cross" in [v["label"] for v in again["images"]]
    more = client.post("/v1/enroll", data={"name": "cross", "add": "true"}, files=shapes("cross", 1, seed=2))
    assert more.json()["images"] == 6
    gone = client.post("/v1/forget", params={"name": "cross"}).json()
    assert gone == {"name": "cross", "images": 0, "classes": list(CLASSES)}
    assert load(model).class_names == CLASSES


def test_enroll_changes_all_or_nothing(served: Served, model: Path) -> None:
    client, before = served(), model.read_bytes()

    def enroll(data: dict[str, str], *sent: Any) -> str:
        return refused(client.post("/v1/enroll", data=data, files=[*sent]), 422)

    assert "0.png is not an image" in enroll({"name": "x"}, *shapes("cross", 2), *files(b"no image"))
    assert "knows a class 'bar' already" in enroll({"name": "bar"}, *shapes("cross", 1))
    assert "'name' is missing" in enroll({}, *shapes("cross", 1))
    assert "'name' is missing" in enroll({"name": " "}, *shapes("cross", 1))
    assert "no class can be called 'unknown'" in enroll({"name": "unknown"}, *shapes("cross", 1))
    assert "can be printed" in enroll({"name": "a\x07b"}, *shapes("cross", 1))
    assert "100 characters" in enroll({"name": "x" * 101}, *shapes("cross", 1))
    assert "must be true or false" in enroll({"name": "x", "add": "maybe"}, *shapes("cross", 1))
    assert "did you mean 'disc'" in refused(client.post("/v1/forget", params={"name": "disk"}), 422)
    assert "name" in refused(client.post("/v1/forget"), 422)
    assert model.read_bytes() == before
    assert client.get("/healthz").json()["model"] == 1


def test_changes_need_the_token_once_one_is_set(served: Served, model: Path) -> None:
    client, before = served(token=TOKEN), model.read_bytes()
    for headers in ({}, {"Authorization": "Bearer wrong-token"}, {"Authorization": TOKEN}):
        answer = client.post("/v1/enroll", data={"name": "x"}, files=shapes("cross", 2), headers=headers)
        assert "token" in refused(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "token" in refused(client.post("/v1/forget?name=bar", headers=headers), 401)
    assert model.read_bytes() == before
    assert client.post("/v1/predict", files=shapes("bar", 1)).status_code == 200  # asking does not
    answer = client.post("/v1/enroll", data={"name": "x"}, files=shapes("cross", 2), headers=BEARER)
    assert answer.json()["classes"] == [*CLASSES, "x"]


def test_what_another_process_enrolled_is_known(served: Served, model: Path) -> None:
    client = served()
    update_model(model, lambda known: known.enroll("cross", tiny_images(5, ("cross",), 3)))
    client.service.live.refresh()  # type: ignore[attr-defined]
    assert client.get("/healthz").json() == {"status": "ok", "classes": 4, "model": 2, "problem": ""}


def test_health_tells_the_truth(served: Served, model: Path) -> None:
    client, whole = served(), model.read_bytes()
    service: Any = client.service  # type: ignore[attr-defined]
    assert client.get("/livez").json() == {"status": "ok"}
    model.write_bytes(whole[:1000])
    service.live.refresh()
    for path in ("/readyz", "/healthz"):
        answer = client.get(path)
        assert answer.status_code == 200  # it goes on answering, with the model of before
        assert answer.json()["status"] == "degraded"
        assert answer.json()["problem"].startswith("model.safetensors is truncated")
    assert client.get("/livez").status_code == 200
    model.write_bytes(whole)
    service.live.refresh()
    assert client.get("/readyz").json()["status"] == "ok"
    service.live._thread = threading.Thread()  # one that does not run
    for path in ("/livez", "/readyz"):
        answer = client.get(path)
        assert answer.status_code == 503
        assert "follows the model file has ended" in answer.json()["status"]
    service.live._thread = None
    service.closing = True
    assert client.get("/livez").status_code == 200
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "shutting down")


def test_limits_are_told(served: Served) -> None:
    client = served(limits=Limits(upload_bytes=5000, images=3, pixels=100, rate=0))
    assert "larger than 5,000 bytes" in refused(client.post("/v1/predict", content=b"x" * 5001), 413)
    chunks = (b"x" * 1000 for _ in range(6))  # no length is announced: counted while it comes
    assert "larger than 5,000 bytes" in refused(client.post("/v1/predict", content=chunks), 413)
    assert "the limit is 3" in refused(client.post("/v1/predict", files=shapes("bar", 4)), 413)
    assert "16 x 16 pixels, the limit is 100" in refused(
        client.post("/v1/predict", files=shapes("bar", 1)), 422
    )


def test_the_rate_of_a_client(served: Served) -> None:
    client = served(limits=Limits(rate=2))
    answers = [client.post("/v1/predict", files=shapes("bar", 1)) for _ in range(6)]
    assert [a.status_code for a in answers][:4] == [200] * 4
    last = answers[-1]
    assert "2 requests a second" in refused(last, 429)
    assert last.headers["retry-after"] == "1"
    assert client.get("/healthz").status_code == 200


def test_other_sites_and_names_are_kept_out(served: Served, model: Path) -> None:
    client, before = served(), model.read_bytes()
    sent: Any = {"data": {"name": "x"}, "files": shapes("cross", 1)}
    assert "another site" in refused(
        client.post("/v1/enroll", headers={"Origin": "http://evil.example"}, **sent), 403
    )
    assert "not called" in refused(client.post("/v1/enroll", headers={"Host": "evil.example"}, **sent), 421)
    assert "not called" in refused(client.get("/healthz", headers={"Host": "evil.example"}), 421)
    assert model.read_bytes() == before
    own = client.post("/v1/enroll", headers={"Origin": "http://127.0.0.1"}, **sent)
    assert own.status_code == 200
    assert "access-control-allow-origin" not in own.headers


def test_wrong_paths_and_methods(served: Served) -> None:
    client = served()
    assert "not found: GET /v1/nothing" in refused(client.get("/v1/nothing"), 404)
    answer = client.get("/v1/predict")
    assert "method not allowed" in refused(answer, 405)
    assert answer.headers["allow"] == "POST"
    assert "multipart/form-data" in refused(client.post("/v1/predict", json={"a": 1}), 415)
    for page_of_another_host in ("/docs", "/redoc"):
        assert client.get(page_of_another_host).status_code == 404


def test_internal_errors_are_told_without_details(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client = served()

    def broken(*args: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(client.service, "decode", broken)  # type: ignore[attr-defined]
    assert "secret" not in refused(client.post("/v1/predict", files=shapes("bar", 1)), 500)


def test_metrics(served: Served) -> None:
    client = served()
    client.post("/v1/predict", files=shapes("bar", 3))
    client.get("/v1/made-up")
    text = client.get("/metrics").text
    for line in (
        'gradmix_requests_total{endpoint="/v1/predict",status="200"} 1.0',
        'gradmix_requests_total{endpoint="other",status="404"} 1.0',  # names of clients make no labels
        "gradmix_batch_images_sum 3.0",
        "gradmix_classes 3.0",
        "gradmix_waiting_images 0.0",
    ):
        assert line in text
    counts = [float(x.split()[-1]) for x in text.splitlines() if x.startswith("gradmix_images_total")]
    assert sum(counts) == 3


def test_openapi_documents_every_endpoint(served: Served) -> None:
    document = served().get("/openapi.json").json()
    paths = {"/v1/predict", "/v1/explain", "/v1/discover", "/v1/enroll", "/v1/forget", "/healthz", "/metrics"}
    paths |= {"/v1/drift", "/v1/classes", "/v1/undo", "/livez", "/readyz"}
    assert set(document["paths"]) == paths
    for path in ("/v1/predict", "/v1/explain", "/v1/enroll"):
        post = document["paths"][path]["post"]
        assert "multipart/form-data" in post["requestBody"]["content"]
        assert {"200", "413", "422", "429", "503"} <= set(post["responses"])
        assert post["description"]
    assert document["paths"]["/v1/enroll"]["post"]["security"] == [{"token": []}]
    assert "token" in document["components"]["securitySchemes"]
    assert "http://" not in json.dumps(document).replace("http://127.0.0.1:7860", "")


def test_a_model_that_rejects_nothing_any_more_says_so(served: Served) -> None:
    client = served()
    assert "note" not in client.post("/v1/forget", params={"name": "bar"}).json()
    told = client.post("/v1/forget", params={"name": "disc"}).json()
    assert "6 images cannot bound false rejects by 0.1 (9 would do): nothing is rejected" in told["note"]


def test_a_disk_that_cannot_be_written_is_a_503(served: Served) -> None:
    client = served()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "touch", _read_only)
        line = refused(client.post("/v1/forget", params={"name": "bar"}), 503)
    assert line == "cannot change model.safetensors: no lock file beside it (Read-only file system)"


def _read_only(path: Path) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


def test_too_many_pixels_are_refused_before_they_are_decoded(served: Served) -> None:
    client, image = served(), webp(ATTACK_SIDE)
    started = time.process_time()
    answer = client.post("/v1/predict", files=files(*[image] * 16))
    assert time.process_time() - started < 10  # of work; decoding them takes half a minute of it
    assert answer.status_code == 413
    assert "the limit of a request is 200,000,000 (--max-request-pixels)" in answer.json()["error"]
    for path in ("/v1/explain", "/v1/discover"):
        assert client.post(path, files=files(*[image] * 7)).status_code == 413
    enroll = client.post("/v1/enroll", data={"name": "x"}, files=files(*[image] * 7))
    assert enroll.status_code == 413


def test_a_request_that_takes_too_long_is_refused(served: Served) -> None:
    client = served(limits=Limits(rate=0, answer_seconds=0.001))
    answer = client.post("/v1/predict", files=files(*[webp(1500)] * 3))
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("there was no answer within 0.001 s (--deadline)")
    assert answer.headers["retry-after"] == "5"


def test_a_damaged_avif_does_not_spoil_the_others(served: Served) -> None:
    answer = served().post("/v1/predict", files=files(png_of("bar"), damaged_avif()))
    assert answer.status_code == 200
    first, second = answer.json()["images"]
    assert "label" in first
    assert second["error"].startswith(("1.png is damaged", "1.png cannot be opened"))
