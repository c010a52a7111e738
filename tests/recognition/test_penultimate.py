"""From one extraction to every detector: what carries the penultimate activation and the head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gradmix.detection import Ensemble, Temperature, make_detector
from gradmix.errors import UserError
from gradmix.evaluation import applicable_detectors, evaluate_open_set
from gradmix.recognition import Recognizer, cached_extract, extract, features, fit, load, save
from gradmix.recognition.calibration import split_held_out
from gradmix.serve.live_model import predict_batch
from tests.training.tiny import tiny_images, tiny_recipe

QUICK: dict[str, Any] = {"max_steps": 2, "holdout": 0.25, "false_reject": 0.2}
LEARN_FROM_H = [
    "she",
    "vim",
    "residual",
    "neco",
    "fdbd",
    "nci",
    "nnguide",
    "relation",
    "react",
    "vra",
    "dice",
]
IMAGES = tiny_images(4, seed=5)


@pytest.fixture(scope="module")
def projected() -> Recognizer:
    """Encoder → linear projection → classifier: its index holds z, not h."""
    return fit(tiny_images(12), tiny_recipe(method="ce", **QUICK))


@pytest.fixture(scope="module")
def plain() -> Recognizer:
    """A classifier on the encoder: h is what its index holds."""
    return fit(tiny_images(12), tiny_recipe(method="ce", projection="none", **QUICK))


def test_one_pass_gives_features_logits_h_and_head(projected: Recognizer, plain: Recognizer) -> None:
    found = projected.outputs(IMAGES, penultimate=True)
    assert found.parts == {"features", "logits", "penultimate", "head"}
    assert found.penultimate is not None
    assert found.head is not None
    assert found.logits is not None
    assert found.penultimate.shape[1] == projected.network.encoder.dim != found.features.shape[1]
    torch.testing.assert_close(found.head.logits(found.penultimate), found.logits, rtol=1e-4, atol=1e-4)
    same = plain.outputs(IMAGES, penultimate=True)
    assert same.penultimate is same.features  # not twice
    slim = projected.outputs(IMAGES)  # by its decision, mls, nothing more is wanted
    assert slim.parts == {"features", "logits"}
    assert torch.equal(slim.features, found.features)
    none = extract(
        projected.network, projected.normalizer, IMAGES.select(torch.tensor([], dtype=torch.int64))
    )
    assert none.parts == found.parts


@pytest.mark.parametrize("projection", ["linear", "none"])
def test_the_cache_keeps_h_once(projection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path))
    monkeypatch.setattr(features, "_SECONDS_WORTH_KEEPING", -1.0)
    made = fit(tiny_images(4), tiny_recipe(method="ce", projection=projection, max_steps=1, k=1))
    first = cached_extract(made.network, made.normalizer, IMAGES)
    monkeypatch.setattr(features, "extract", None)  # the network rests
    second = cached_extract(made.network, made.normalizer, IMAGES)
    assert first.penultimate is not None
    assert second.penultimate is not None
    assert first.head is not None
    assert second.head is not None
    assert torch.equal(first.penultimate, second.penultimate)
    assert torch.equal(first.head.weight, second.head.weight)
    assert (second.penultimate is second.features) == (projection == "none")


@pytest.mark.parametrize("name", ["vim", "react", "neco", "knn_distance", "ash", "temperature", "vim+mls"])
def test_a_score_of_h_decides_from_the_start(name: str, tmp_path: Path) -> None:
    made = fit(tiny_images(12), tiny_recipe(method="ce", detector=name, **QUICK))
    save(made, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.decision.detector.name == name
    assert torch.equal(again.predict(IMAGES).score, made.predict(IMAGES).score)
    assert again.threshold == made.threshold
    assert made.threshold.promised
    # h of the held-out images is in the file: another rate needs no images.
    assert again.recalibrate(0.4).threshold.value == pytest.approx(
        made.recalibrate(0.4).threshold.value, rel=1e-5
    )
    assert evaluate_open_set(again, IMAGES, tiny_images(4, ("cross",), seed=5)).main["auroc"] >= 0
    served = predict_batch(again, IMAGES.images)
    assert torch.equal(served.found.score, again.predict(IMAGES).score)
    assert [e.label for e in again.explain(IMAGES.select(torch.arange(2)))] == again.predict(IMAGES).names()[
        :2
    ]


def test_what_the_model_does_not_hold_is_refused_with_the_way_out(
    projected: Recognizer, plain: Recognizer
) -> None:
    for name in LEARN_FROM_H:
        with pytest.raises(
            UserError, match=rf"detector {name} needs penultimate .* --detector {name}, or .* none"
        ):
            projected.with_detector(name)
        assert plain.with_detector(name).threshold.promised
    for name in ("ash", "scale"):  # learn nothing: the held-out images suffice
        assert projected.with_detector(name).threshold.promised
    contrastive = fit(tiny_images(12), tiny_recipe(**QUICK))
    possible = applicable_detectors(contrastive, tiny_images(12))
    assert {"knn_distance", "rmds", "neco"} <= set(possible)
    assert not {"vim", "she", "ash", "gen"} & set(possible)
    with pytest.raises(UserError, match=r"'react' needs head, logits.*models trained with ce"):
        evaluate_open_set(contrastive, IMAGES, IMAGES, detectors=["react"])
    mlp = fit(tiny_images(12), tiny_recipe(method="ce", projection="mlp", **QUICK))
    with pytest.raises(UserError, match=r"'vim' needs head.*ce and the like, without projection: mlp, do\)"):
        evaluate_open_set(mlp, IMAGES, IMAGES, detectors=["vim"])


def test_training_images_are_loaded_only_if_a_score_wants_them(
    projected: Recognizer, plain: Recognizer
) -> None:
    def never() -> Any:
        raise AssertionError("loaded")

    unknown = tiny_images(4, ("cross",), seed=5)
    evaluate_open_set(projected, IMAGES, unknown, never, ["nno", "openmax", "ash", "mls", "temperature"])
    evaluate_open_set(plain, IMAGES, unknown, never, [*LEARN_FROM_H, "knn_distance"])
    calls = []

    def images() -> Any:
        calls.append(1)
        return tiny_images(12)

    found = evaluate_open_set(projected, IMAGES, unknown, images, LEARN_FROM_H)
    assert list(found.metrics) == ["mls", *LEARN_FROM_H]
    assert len(calls) == 1

    def gone() -> Any:
        raise UserError("no such folder")

    with pytest.raises(UserError, match="no such folder"):
        evaluate_open_set(projected, IMAGES, unknown, gone, ["vim"])
    tried = []

    def gone_again() -> Any:
        tried.append(1)
        raise UserError("no such folder")

    assert not set(LEARN_FROM_H) & set(applicable_detectors(projected, gone_again))
    assert len(tried) == 1
    on_z = evaluate_open_set(projected, IMAGES, unknown, gone, ["rmds"])  # which is content with z
    assert "rmds" in on_z.metrics


def test_the_same_whether_from_the_model_or_from_the_images(plain: Recognizer) -> None:
    unknown = tiny_images(4, ("cross",), seed=5)
    names = ["vim", "fdbd", "react", "knn_distance", "rmds"]
    held = plain.calibration
    assert held is not None
    to_train = fit(
        tiny_images(12), tiny_recipe(method="ce", projection="none", **QUICK)
    ).index.training_features()
    for name in names:
        detector = plain.with_detector(name).decision.detector
        direct = make_detector(name).fit(plain.training_outputs(make_detector(name)), 3)
        outputs = plain.outputs(unknown, penultimate=True)
        torch.testing.assert_close(detector.score(outputs).score, direct.score(outputs).score)
    assert len(to_train.labels) == 27


def test_half_of_the_held_out_images_are_for_the_score_and_half_for_the_threshold(plain: Recognizer) -> None:
    held_out = plain.calibration
    assert held_out is not None
    assert len(held_out.labels) == 9
    to_learn, to_set = split_held_out(Temperature(), held_out)
    assert to_learn is not None
    assert to_set is not None
    assert to_learn.labels.tolist() == [0, 1, 2]
    assert to_set.labels.tolist() == [0, 0, 1, 1, 2, 2]
    for name in ("temperature", "knn+mls"):
        made = plain.with_detector(name)
        assert made.threshold.n == 6
        expected = make_detector(name)
        if isinstance(made.decision.detector, Ensemble):
            assert made.decision.detector.members[0].settings()["k"] == plain.index.k
            continue
        expected.fit(plain.training_outputs(expected), 3, held_out=to_learn)
        outputs = plain.outputs(IMAGES)
        assert torch.equal(expected.score(outputs).score, made.decision.detector.score(outputs).score)
    assert plain.with_detector("mls").threshold.n == 9
    both = split_held_out(make_detector("mls"), held_out)
    assert both == (held_out, held_out)
    one_each = held_out.select(torch.tensor([0, 3, 6]))
    learn, rest = split_held_out(Temperature(), one_each)
    assert learn is not None
    assert rest is not None
    assert (len(learn.labels), len(rest.labels)) == (1, 2)


def test_without_held_out_images_a_temperature_cannot_be_had(plain: Recognizer) -> None:
    bare = replace(plain, calibration=None)
    assert "temperature" in applicable_detectors(plain)
    assert "temperature" not in applicable_detectors(bare)
    with pytest.raises(UserError, match="kept out of training, and there are none; train with holdout"):
        evaluate_open_set(bare, IMAGES, IMAGES, detectors=["temperature"])
    with pytest.raises(UserError, match="kept out of training"):
        fit(tiny_images(12), tiny_recipe(method="ce", detector="temperature", max_steps=1))


def test_an_alias_is_no_second_row(plain: Recognizer) -> None:
    found = evaluate_open_set(plain, IMAGES, IMAGES, detectors=["mds", "nno", "maxlogit", "mahalanobis+ebo"])
    assert list(found.metrics) == ["mls", "nno", "nno+energy"]
    assert plain.with_detector("maxlogit") is plain
    assert (
        fit(tiny_images(6), tiny_recipe(method="ce", detector="ebo", max_steps=1)).decision.detector.name
        == "energy"
    )


def test_a_forgotten_class_takes_its_part_of_h_along(plain: Recognizer) -> None:
    left = plain.with_detector("knn").forget("disc")
    assert left.calibration is not None
    assert left.calibration.penultimate is not None
    assert left.calibration.head is None
    assert len(left.calibration.penultimate) == 6
    assert "head" not in left.outputs(IMAGES, penultimate=True).parts
    assert {"rmds", "knn_distance", "neco"} <= set(applicable_detectors(left))
    with pytest.raises(UserError, match="knows only the classes the network was trained on"):
        left.with_detector("ash")
