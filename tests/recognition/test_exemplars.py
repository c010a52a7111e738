"""Images that speak for their class alone: what a person taught is recognized, however odd it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradmix.data import ImageSet
from gradmix.detection import KNN, Outputs
from gradmix.errors import UserError
from gradmix.recognition import Recognizer, fit, load, save
from gradmix.recognition.class_bias import left_out_similarity
from tests.training.tiny import CLASSES, tiny_images, tiny_recipe


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return fit(tiny_images(24), tiny_recipe(epochs=15, holdout=0.25, false_reject=0.1))


@pytest.fixture(scope="module")
def odd(recognizer: Recognizer) -> ImageSet:
    """Images of noise of which the model, taught three, would not name all: no two are alike."""
    g = torch.Generator().manual_seed(5)
    pixels = torch.randint(0, 256, (3, *tiny_images(1).images.shape[1:]), generator=g).to(torch.uint8)
    pixels[1] //= 8
    pixels[2] = tiny_images(1, ("disc",), 5).images[0]
    return ImageSet(pixels, torch.full((3,), -1), ())


def with_exemplars(*places: int, reach: float = -1.0) -> KNN:
    """Two classes of two images in a plane, some of them exemplars."""
    some = {"exemplars": torch.tensor(places), "exemplar_reach": torch.full((len(places),), reach)}
    state = {
        "features": torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [-0.6, 0.8]]),
        "labels": torch.tensor([0, 0, 1, 1]),
        "num_classes": torch.tensor([2]),
        **(some if places else {}),
    }
    return KNN.from_state(state, KNN(k=2, normalize="none").settings())


def test_an_exemplar_counts_as_k_neighbours() -> None:
    """By hand: z = (0, 1) has cosines 0 and 0.6 to class 0, 1 and 0.8 to class 1."""
    z = torch.tensor([[0.0, 1.0]])
    torch.testing.assert_close(with_exemplars().class_similarity(z), torch.tensor([[0.6, 1.8]]))
    torch.testing.assert_close(with_exemplars(1).class_similarity(z), torch.tensor([[1.2, 1.8]]))
    torch.testing.assert_close(with_exemplars(0).class_similarity(z), torch.tensor([[0.6, 1.8]]))
    torch.testing.assert_close(with_exemplars(1, 2).class_similarity(z), torch.tensor([[1.2, 2.0]]))
    torch.testing.assert_close(
        with_exemplars(1, 2, reach=0.7).class_similarity(z), torch.tensor([[0.6, 2.0]])
    )
    scores = with_exemplars(1, 2).score(Outputs(z, torch.tensor([-1])))
    assert (float(scores.score), int(scores.label)) == (2.0, 1)


def test_an_exemplar_is_left_out_of_its_own_neighbours() -> None:
    knn = with_exemplars(1)
    found = knn.leave_one_out()  # of image 1: 2·0.8 to image 0; of image 0: exemplar 1; of 3: 2·0.8 to 2
    torch.testing.assert_close(found.score, torch.tensor([1.6, 1.6, 1.6, 1.6], dtype=torch.float64))
    d = left_out_similarity(with_exemplars(2), with_exemplars(2).state(), 1)
    torch.testing.assert_close(d[:, 1], torch.tensor([1.6, 1.6], dtype=torch.float64))


def test_the_exemplars_must_be_images_of_the_index() -> None:
    for places in ((4,), (-1,)):
        with pytest.raises(UserError, match="places among 4 images"):
            with_exemplars(*places)


def test_what_was_taught_is_recognized(recognizer: Recognizer, tmp_path: Path) -> None:
    crosses = tiny_images(8, ("cross",), 3)
    taught = recognizer.enroll("cross", crosses)
    assert taught.predict(crosses).names() == ["cross"] * 8
    assert taught.index.state()["exemplars"].tolist() == list(range(54, 62))
    assert taught.threshold.promised
    state = {name: values for name, values in taught.index.state().items() if name != "exemplars"}
    index = KNN.from_state(state, taught.index.settings())
    plain = replace(taught, index=index, decision=replace(taught.decision, detector=index)).recalibrate()
    assert plain.predict(crosses).names() != ["cross"] * 8  # so they were needed
    save(taught, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    images = tiny_images(8, (*CLASSES, "cross"), seed=6)
    assert torch.equal(again.predict(images).score, taught.predict(images).score)


def test_without_need_there_are_no_exemplars(recognizer: Recognizer, odd: ImageSet) -> None:
    taught = recognizer.enroll("odd", odd)
    assert taught.predict(odd).names() == ["odd"] * 3
    assert "exemplars" not in taught.index.state()


def test_a_correction_is_recognized(recognizer: Recognizer) -> None:
    """No, it is a bar: images one by one join a class that was trained."""
    crosses = tiny_images(4, ("cross",), 3)
    test = tiny_images(40, seed=11)
    before = recognizer.predict(test).label == test.labels
    for i in range(4):
        one = crosses.select([i])
        corrected = recognizer.enroll("bar", one, add=True)
        assert corrected.predict(one).names() == ["bar"]
        assert corrected.class_names == CLASSES
        after = corrected.predict(test).label == test.labels
        assert float((before & ~after).double().mean()) < 0.02


def test_forgetting_keeps_the_exemplars_of_other_classes(recognizer: Recognizer) -> None:
    crosses = tiny_images(8, ("cross",), 3)
    taught = recognizer.enroll("cross", crosses)
    left = taught.forget("bar").index.state()
    assert left["exemplars"].tolist() == list(range(36, 44))
    assert left["labels"][left["exemplars"]].tolist() == [2] * 8
    images = tiny_images(6, (*CLASSES, "cross"), seed=8)
    back = taught.forget("cross")
    assert "exemplars" not in back.index.state()
    assert torch.equal(back.predict(images).score, recognizer.predict(images).score)
    twice = taught.enroll("cross", tiny_images(2, ("disc",), 12), add=True)
    assert twice.index.state()["exemplars"].tolist()[:8] == list(range(54, 62))


def test_without_held_out_images(recognizer: Recognizer) -> None:
    crosses = tiny_images(8, ("cross",), 3)
    bare = replace(recognizer, calibration=None).enroll("cross", crosses)
    assert bare.predict(crosses).names() == ["cross"] * 8
