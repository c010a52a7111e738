"""Whole models only: swapped after a change, followed on disk, kept if the disk has none."""

from __future__ import annotations

import errno
import random
import shutil
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from gradmix import files
from gradmix.errors import UserError
from gradmix.recognition import model_file, update_model
from gradmix.serve import live_model
from gradmix.serve.http import HTTPError
from gradmix.serve.live_model import LiveModel, predict_batch
from tests.serve.conftest import TOKEN, server_process, shapes
from tests.training.tiny import CLASSES, tiny_images


def crosses(seed: int = 3):  # type: ignore[no-untyped-def]
    return tiny_images(5, ("cross",), seed)


def test_changes_are_on_disk_and_in_use(model: Path) -> None:
    live = LiveModel(model)
    before = live.current
    live.change(lambda known: known.enroll("cross", crosses()))
    assert live.current.recognizer.class_names == (*CLASSES, "cross")
    assert not live.refresh()  # its own change is not news
    assert live.current.number == before.number + 1
    assert before.recognizer.class_names == CLASSES  # who holds it goes on with it
    assert LiveModel(model).current.recognizer.class_names == (*CLASSES, "cross")


def test_changes_of_others_are_taken_over(model: Path) -> None:
    live = LiveModel(model)
    assert not live.refresh()
    update_model(model, lambda known: known.enroll("cross", crosses()))
    assert live.refresh()
    assert live.current.recognizer.class_names == (*CLASSES, "cross")
    assert not live.refresh()
    live.change(lambda known: known.forget("cross"))
    update_model(model, lambda known: known.enroll("plus", crosses()))
    live.refresh()
    assert live.current.recognizer.class_names == (*CLASSES, "plus")


def test_a_broken_file_is_not_taken_over(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveModel(model)
    whole = model.read_bytes()
    model.write_bytes(whole[:1000])
    assert not live.refresh()
    assert live.problem.startswith("model.safetensors is truncated")  # and not where it lies
    assert "still serving the model of before" in capsys.readouterr().err
    assert live.current.recognizer.class_names == CLASSES
    assert not live.refresh()  # and is not complained about every second
    assert capsys.readouterr().err == ""
    model.unlink()
    assert not live.refresh()
    assert live.problem == "model.safetensors is gone"
    model.write_bytes(whole)
    assert live.refresh()
    assert live.problem == ""


def test_a_refused_change_changes_nothing(model: Path) -> None:
    live, before = LiveModel(model), model.read_bytes()
    with pytest.raises(UserError, match="knows a class 'bar' already"):
        live.change(lambda known: known.enroll("bar", crosses()))
    assert model.read_bytes() == before
    assert live.current.number == 1


def test_readers_never_see_half_a_class(model: Path) -> None:
    """Names, index and thresholds belong together in every answer, whatever is being changed."""
    live, stop = LiveModel(model), threading.Event()
    images = tiny_images(2, seed=5).images[:]
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            while not stop.is_set():
                served = live.current
                predictions = predict_batch(served.recognizer, images)
                assert max(predictions.top_label.flatten().tolist()) < len(served.recognizer.class_names)
                assert len(predictions.rows()) == len(images)
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=ask) for _ in range(3)]
    for reader in readers:
        reader.start()
    for i in range(4):
        live.change(lambda known, i=i: known.enroll(f"cross {i}", crosses(i)))
    for i in range(4):
        live.change(lambda known, i=i: known.forget(f"cross {i}"))
    stop.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert live.current.recognizer.class_names == CLASSES


def test_explaining_has_a_network_of_its_own(model: Path) -> None:
    served = LiveModel(model).current
    assert served.explainer is served.explainer
    assert served.explainer.network is not served.recognizer.network
    assert served.explainer.index is served.recognizer.index


def test_a_model_of_the_hub_is_not_changed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is in the Hub's cache folder, where others take it for what the Hub has."""
    monkeypatch.setattr(model_file, "fetch", lambda address: model)
    live, before = LiveModel("hf://me/shapes"), model.read_bytes()
    with pytest.raises(UserError, match="hf://me/shapes cannot be changed there"):
        live.change(lambda known: known.forget("bar"))
    assert model.read_bytes() == before
    assert live.current.number == 1


def test_a_full_disk_is_not_the_clients_mistake(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(part: Path, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    live = LiveModel(model)
    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(HTTPError) as refused:
        live.change(lambda known: known.forget("bar"))
    assert refused.value.status == 503
    assert refused.value.reason == "could not write model.safetensors: No space left on device"
    assert live.current.recognizer.class_names == CLASSES


def test_where_the_model_lies_is_not_told(model: Path) -> None:
    live = LiveModel(model.parent)
    model.unlink()
    with pytest.raises(UserError, match=r"no model at ") as told:
        live.change(lambda known: known.forget("bar"))
    assert str(model.parent) not in str(told.value)


@pytest.mark.slow
def test_copies_over_the_file_do_not_end_the_server(trained_model: Path, tmp_path: Path) -> None:
    """``cp`` cuts the file, then writes it anew: whoever had it mapped would end by SIGBUS."""
    model, other = tmp_path / "model.safetensors", tmp_path / "other.safetensors"
    shutil.copyfile(trained_model, model)
    shutil.copyfile(trained_model, other)
    update_model(other, lambda known: known.enroll("cross", crosses()))
    chance, pictures = random.Random(0), shapes("disc", 2)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with (
        server_process(model, "--rate", "0", token=TOKEN, says="still serving the model") as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, headers=bearer) as http,
    ):
        for number in range(30):
            content = (trained_model if number % 2 else other).read_bytes()
            with open(model, "wb", buffering=0) as file:  # as cp does it, slowly
                for first in range(0, len(content), 1 + len(content) // 3):
                    answer = http.post("/v1/predict", files=pictures)
                    assert answer.status_code == 200, answer.text
                    assert len(answer.json()["images"]) == 2
                    file.write(content[first : first + 1 + len(content) // 3])
            time.sleep(chance.uniform(0.0, 0.2))
            answer = http.post("/v1/explain", files=pictures[:1])
            assert answer.status_code == 200, answer.text
        shutil.copyfile(other, model)
        for _ in range(100):
            answer = http.post("/v1/predict", files=shapes("cross", 3), params={"top": 4})
            if "cross" in answer.text:
                break
            time.sleep(0.1)
        else:
            pytest.fail("the last copy was not taken over")


def test_a_file_that_could_not_be_read_is_tried_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was wrong, a disk or a permission, can be mended without a change of the file."""
    live = LiveModel(model)
    update_model(model, lambda known: known.enroll("cross", crosses()))
    with monkeypatch.context() as patch:
        patch.setattr(live_model, "load", lambda *_: (_ for _ in ()).throw(OSError("Input/output error")))
        tries = [live.refresh() for _ in range(5)]
        assert tries == [False] * 5
        assert live.problem == "Input/output error"
    assert any(live.refresh() for _ in range(70))
    assert live.current.recognizer.class_names == (*CLASSES, "cross")
    assert live.problem == ""
    away = model.rename(model.with_name("away"))
    assert not live.refresh()
    assert live.problem == "model.safetensors is gone"
    away.rename(model)  # the very same file
    assert not live.refresh()
    assert live.problem == ""


@pytest.mark.parametrize("error", [OverflowError("int too large"), RecursionError("deep"), MemoryError()])
def test_no_file_ends_the_thread_that_follows_it(
    error: Exception, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A threshold of 10^400 once did: nothing was followed any more, and the server said it was well."""
    monkeypatch.setattr(live_model, "POLL_SECONDS", 0.01)
    live, asked = LiveModel(model), threading.Event()

    def fail(*_: object) -> None:
        asked.set()
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(live_model, "load", fail)
        patch.setattr(sys, "stderr", None)  # nor does a complaint that nobody can read
        live.follow()
        update_model(model, lambda known: known.enroll("cross", crosses()))
        assert asked.wait(60)
        while not live.problem:
            time.sleep(0.01)
        assert type(error).__name__ in live.problem
        assert not live.lost_track
    update_model(model, lambda known: known.enroll("plus", crosses(4)))
    while "plus" not in live.current.recognizer.class_names:
        time.sleep(0.01)
    assert live.problem == ""
    live.close()


def test_a_model_that_cannot_answer_is_not_taken_over(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveModel(model)

    def fail(*_: object) -> None:
        raise RuntimeError("shapes do not fit")

    update_model(model, lambda known: known.enroll("cross", crosses()))
    with monkeypatch.context() as patch:
        patch.setattr(live_model, "predict_batch", fail)
        assert not live.refresh()
    assert "shapes do not fit" in live.problem
    assert live.current.number == 1
