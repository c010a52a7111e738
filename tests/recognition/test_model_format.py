"""A model file stands alone: it opens without what trained it, and those of earlier versions still open."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradmix.data import ImageSet
from gradmix.detection import DETECTORS, KNN, Ensemble, KnownScores, make_detector
from gradmix.errors import UserError
from gradmix.files import read_tensors
from gradmix.methods import METHODS
from gradmix.methods.clip_prompts import CLIPMethod
from gradmix.recognition import fit, load, save
from tests.models.tiny_clip import clip_fields
from tests.training.tiny import SMALL, tiny_images, tiny_recipe

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize("method", ["gradmix", "ce"])
def test_models_of_version_0_answer_as_they_did(method: str) -> None:
    """Both decided by neighbours; one of them has an enrolled class, and so a bias."""
    recorded = json.loads((FIXTURES / "version-0-answers.json").read_text())
    pixels = torch.tensor(recorded["pixels"], dtype=torch.uint8)
    found = load(FIXTURES / f"version-0-{method}.safetensors")
    assert isinstance(found.decision.detector, KNN)
    answers = found.predict(ImageSet(pixels, torch.full((len(pixels),), -1), ()))
    expected = recorded["answers"][method]
    assert answers.nearest.tolist() == expected["nearest"]
    # The scores went through another machine's arithmetic: equal but for rounding.
    scores = torch.tensor(expected["score"], dtype=torch.float64)
    torch.testing.assert_close(answers.score, scores, rtol=1e-4, atol=1e-4)
    sure = (answers.score - answers.threshold).abs() > 1e-3
    assert answers.label[sure].tolist() == torch.tensor(expected["label"])[sure].tolist()


@pytest.mark.parametrize("method", ["gradmix", "ce"])
def test_models_of_earlier_versions_have_p_values(method: str) -> None:
    """Their files have no scores of known images; these are found again, when they are needed."""
    recorded = json.loads((FIXTURES / "version-0-answers.json").read_text())
    pixels = torch.tensor(recorded["pixels"], dtype=torch.uint8)
    model = load(FIXTURES / f"version-0-{method}.safetensors")
    answers = model.predict(ImageSet(pixels, torch.full((len(pixels),), -1), ()))
    assert model.decision.known_scores is not None
    assert len(model.decision.known_scores.score) == model.threshold.n
    assert torch.equal(answers.p_value <= model.threshold.false_reject, ~answers.accepted)
    assert len(answers.p_value.unique()) > 1


@pytest.mark.parametrize("holdout", [0.25, 0.0])
def test_scores_of_known_images_are_in_the_file(holdout: float, tmp_path: Path) -> None:
    made = fit(tiny_images(12), tiny_recipe(max_steps=2, holdout=holdout, false_reject=0.2))
    made = made.enroll("more", tiny_images(4, ("cross",), seed=3)).recalibrate(per_class=True)
    save(made, tmp_path / "m.safetensors")
    found = load(tmp_path / "m.safetensors")
    kept, same = made.decision.known, found.decision.known
    assert isinstance(kept, KnownScores)
    assert isinstance(same, KnownScores)
    for one, other in ((kept.score, same.score), (kept.label, same.label)):
        assert torch.equal(one, other)
    assert (same.classes, same.held_out) == (kept.classes, holdout > 0)
    more = found.class_names.index("more")
    assert {c: e.images for c, e in same.enrolled.items()} == {more: 4}
    assert torch.equal(same.enrolled[more].score, kept.enrolled[more].score)
    assert found.at_rate(0.3).threshold == made.at_rate(0.3).threshold
    images = tiny_images(6, seed=5)
    assert torch.equal(found.predict(images).p_value, made.predict(images).p_value)


def test_a_file_with_damaged_scores_is_refused(tmp_path: Path) -> None:
    made = fit(tiny_images(12), tiny_recipe(max_steps=2, holdout=0.25, false_reject=0.2))
    kept = made.decision.known
    assert isinstance(kept, KnownScores)
    for wrong in (replace(kept, score=kept.score.flip(0)), replace(kept, label=kept.label + 9)):
        damaged = replace(made, decision=replace(made.decision, known=wrong))
        save(damaged, tmp_path / "m.safetensors")
        with pytest.raises(UserError, match="not a whole gradmix model: the scores of known images"):
            load(tmp_path / "m.safetensors")


def test_a_model_of_version_0_can_be_changed_and_saved(tmp_path: Path) -> None:
    old = load(FIXTURES / "version-0-gradmix.safetensors")
    assert old.class_names == ("a", "b", "c", "d")
    assert old.enrolled_names == ("d",)
    assert len(old.decision.class_bias) == 4
    changed = old.forget("d").recalibrate(0.2)
    save(changed, tmp_path / "new.safetensors")
    again = load(tmp_path / "new.safetensors")
    assert again.class_names == ("a", "b", "c")
    assert again.threshold == changed.threshold
    classifier = load(FIXTURES / "version-0-ce.safetensors").with_detector("mls")
    assert classifier.decision.detector.name == "mls"
    assert classifier.threshold.promised


@pytest.mark.parametrize("method", [method for method in METHODS if method != "frozen"])
def test_what_is_saved_answers_the_same_without_its_method(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = clip_fields(method) if issubclass(METHODS[method], CLIPMethod) else {"method": method}
    fields |= SMALL.get(method, {})
    made = fit(tiny_images(12), tiny_recipe(**fields, max_steps=2, holdout=0.25, false_reject=0.2))
    file = tmp_path / "m.safetensors"
    save(made, file)
    monkeypatch.delitem(METHODS, method)
    found = load(file)
    images = tiny_images(4, seed=5)
    assert torch.equal(found.predict(images).score, made.predict(images).score)
    assert torch.equal(found.predict(images).label, made.predict(images).label)
    assert found.decision.detector.name == made.decision.detector.name
    assert found.recipe["method"] == method


GIVEN = {"features", "logits", "penultimate", "head"}
OF_CLASSIFIERS = [name for name, kind in DETECTORS.items() if kind.needs <= GIVEN]


@pytest.mark.parametrize("name", [*OF_CLASSIFIERS, "knn:sum", "knn+mls", "vim+knn:none"])
def test_every_decision_survives_the_file(name: str, tmp_path: Path) -> None:
    fields = {"max_steps": 2, "holdout": 0.25, "false_reject": 0.2}
    made = fit(tiny_images(12), tiny_recipe(method="ce", projection="none", **fields))
    chosen = made.with_detector(name)
    save(chosen, tmp_path / "m.safetensors")
    found = load(tmp_path / "m.safetensors")
    images = tiny_images(4, seed=5)
    assert torch.equal(found.predict(images).score, chosen.predict(images).score)
    assert found.threshold == chosen.threshold
    assert found.threshold.promised
    assert found.calibration is not None
    assert chosen.calibration is not None
    assert chosen.calibration.logits is not None
    assert found.calibration.logits is not None
    assert torch.equal(found.calibration.logits, chosen.calibration.logits)
    again = found.recalibrate(0.3)  # what the network said about the held-out images is in the file
    wanted = chosen.recalibrate(0.3).threshold
    assert again.threshold.value == pytest.approx(wanted.value, rel=1e-5)  # tensors of a file lie elsewhere
    assert (again.threshold.n, again.threshold.promised) == (wanted.n, True)


@pytest.mark.parametrize("trained_with", [False, True])
def test_a_sum_with_neighbours_has_them_once(trained_with: bool, tmp_path: Path) -> None:
    own = {"detector": "mls+knn:sum"} if trained_with else {}
    fields = {"method": "ce", "max_steps": 2, "holdout": 0.25, "false_reject": 0.2, **own}
    made = fit(tiny_images(12), tiny_recipe(**fields)).with_detector("mls+knn:sum")
    save(made, tmp_path / "m.safetensors")
    _, tensors = read_tensors(tmp_path / "m.safetensors")
    of_sum = sorted(name for name in tensors if name.startswith("detector."))
    assert of_sum == ["detector.0.num_classes", "detector.deviation", "detector.mean"]
    found = load(tmp_path / "m.safetensors")
    assert isinstance(found.decision.detector, Ensemble)
    neighbours = found.decision.detector.members[1]
    assert isinstance(neighbours, KNN)
    assert neighbours.normalize == "sum"
    assert neighbours._bank is found.index._bank  # not even a second time in memory
    save(found, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


def test_a_sum_that_was_saved_with_neighbours_of_its_own_still_opens(tmp_path: Path) -> None:
    made = fit(tiny_images(12), tiny_recipe(method="ce", max_steps=2, holdout=0.25, false_reject=0.2))
    own = make_detector("knn+mls")
    own.fit(made.training_outputs(own), 3, held_out=made.held_out_outputs(own))
    old = replace(made, decision=replace(made.decision, detector=own))
    save(old, tmp_path / "m.safetensors")
    assert "detector.0.features" in read_tensors(tmp_path / "m.safetensors")[1]
    images = tiny_images(4, seed=5)
    assert torch.equal(load(tmp_path / "m.safetensors").predict(images).score, old.predict(images).score)


def test_cross_entropy_decides_by_its_largest_logit() -> None:
    made = fit(tiny_images(12), tiny_recipe(method="ce", max_steps=5, holdout=0.25, false_reject=0.2))
    images = tiny_images(6, seed=5)
    logits = made.outputs(images).logits
    assert logits is not None
    found = made.predict(images)
    assert torch.equal(found.score, logits.double().amax(1))
    assert torch.equal(found.nearest, logits.argmax(1))
    assert made.calibration is not None
    assert made.calibration.logits is not None
    own = made.calibration.logits.double().amax(1)
    rank = int(0.2 * (len(own) + 1) + 1e-9)
    assert made.threshold.value == float(own.sort().values[rank - 1])
    assert made.threshold.promised
    by_neighbours = fit(
        tiny_images(12), tiny_recipe(method="ce", max_steps=5, holdout=0.25, false_reject=0.2, detector="knn")
    )
    assert isinstance(by_neighbours.decision.detector, KNN)
    back = made.with_detector("knn")
    assert torch.equal(back.predict(images).score, by_neighbours.predict(images).score)
