"""What an explanation shows is what decided."""

from __future__ import annotations

import json

import pytest
import torch

from gradmix.attribution import LayerCAM
from gradmix.data import ImageSet
from gradmix.detection import Threshold
from gradmix.errors import UserError
from gradmix.recognition import Recognizer, fit
from tests.training.tiny import CLASSES, SIDE, tiny_images, tiny_recipe


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return fit(tiny_images(12), tiny_recipe(epochs=3, holdout=0.25, false_reject=0.2))


@pytest.fixture(scope="module")
def images() -> ImageSet:
    return tiny_images(2, (*CLASSES, "cross"), seed=5)


def test_verdict_and_evidence_agree_with_predict(recognizer: Recognizer, images: ImageSet) -> None:
    answers = recognizer.predict(images)
    for i, found in enumerate(recognizer.explain(images)):
        assert found.label == answers.names()[i]
        assert found.score == float(answers.score[i])
        assert found.threshold == recognizer.threshold.value
        assert found.known == (found.label != "unknown")
        assert found.classes[0].name == CLASSES[int(answers.nearest[i])]
        nearness = [c.similarity for c in found.classes]
        assert nearness == sorted(nearness, reverse=True)
        assert torch.equal(found.image, images.images[i])


def test_the_neighbours_are_those_whose_cosines_are_summed(recognizer: Recognizer, images: ImageSet) -> None:
    state = recognizer.index.state()
    unit = torch.nn.functional.normalize(recognizer.outputs(images).features, dim=1)
    for i, found in enumerate(recognizer.explain(images, neighbours=recognizer.index.k)):
        for evidence in found.classes:
            label = CLASSES.index(evidence.name)
            cosines = sorted(
                (float(unit[i] @ state["features"][j]), j)
                for j in range(len(state["labels"]))
                if state["labels"][j] == label
            )[::-1][: recognizer.index.k]
            assert [n.similarity for n in evidence.neighbours] == pytest.approx(
                [c for c, _ in cosines], abs=1e-5
            )
            assert evidence.similarity == pytest.approx(sum(c for c, _ in cosines) / len(cosines), abs=1e-5)
            for near in evidence.neighbours:
                assert int(state["labels"][near.index]) == label
                assert near.picture is not None


def test_the_pictures_are_the_training_images(recognizer: Recognizer) -> None:
    train = tiny_images(12)
    seen = recognizer.explain(train, classes=1, neighbours=1)
    nearest = [found.classes[0].neighbours[0].picture for found in seen]
    same = sum(p is not None and torch.equal(p, train.images[i]) for i, p in enumerate(nearest))
    assert same >= 27  # those that were not held out are their own neighbours


def test_the_heat_map_is_of_the_winning_classs_similarity(recognizer: Recognizer, images: ImageSet) -> None:
    """Against LayerCAM of d_c with the class's features all in one matrix."""
    state, k = recognizer.index.state(), recognizer.index.k
    winner = recognizer.predict(images).nearest

    def similarity(z: torch.Tensor) -> torch.Tensor:
        unit = torch.nn.functional.normalize(z, dim=1)
        cosine = unit @ state["features"].T
        other = winner[:, None] != state["labels"][None]
        return cosine.masked_fill(other, -9).topk(k, dim=1).values.sum(1)

    ready = recognizer.normalizer(images.images[:])
    maps = LayerCAM(recognizer.network, "conv4_2", normalize="per_image")(ready, similarity)
    expected = maps / maps.amax((1, 2), keepdim=True).clamp(min=1e-30)
    torch.testing.assert_close(recognizer.heat_maps(images), expected, rtol=1e-3, atol=1e-3)
    heat = torch.stack([e.heat for e in recognizer.explain(images)])
    assert torch.equal(heat, recognizer.heat_maps(images))
    assert heat.shape == (len(images), SIDE, SIDE)


def test_rejected_images_and_models_without_a_threshold(recognizer: Recognizer, images: ImageSet) -> None:
    from gradmix.report.explanation_page import verdict

    strict = recognizer.with_threshold(Threshold(1e6, 0.1, 9, guaranteed=True))
    found = strict.explain(images)[0]
    assert found.label == "unknown"
    assert "unknown: most like" in verdict(found)
    never = recognizer.with_threshold(Threshold(float("-inf"), 0.1, 1, guaranteed=False))
    found = never.explain(images)[0]
    assert found.known
    assert "rejects nothing" in verdict(found)
    assert json.loads(json.dumps(found.to_dict()))["threshold"] is None


def test_an_enrolled_class_shows_its_own_pictures_and_threshold(recognizer: Recognizer) -> None:
    crosses = tiny_images(2, ("cross",), seed=3)
    known = recognizer.enroll("cross", crosses)
    for i, found in enumerate(known.explain(crosses, classes=4, neighbours=5)):
        (cross,) = [c for c in found.classes if c.name == "cross"]
        assert len(cross.neighbours) == 2
        assert cross.neighbours[0].picture is not None
        assert torch.equal(cross.neighbours[0].picture, crosses.images[i])
        label = known.class_names.index(found.classes[0].name)
        assert found.threshold == known.threshold.by_class[label].value


def test_without_pictures_names_are_left(recognizer: Recognizer, images: ImageSet) -> None:
    near = recognizer.without_pictures().explain(images)[0].classes[0].neighbours[0]
    assert near.picture is None
    assert near.source == f"training image {near.index}"


def test_edges(recognizer: Recognizer, images: ImageSet) -> None:
    assert recognizer.explain(images.select([])) == []
    assert len(recognizer.explain(images.select([0]), classes=99, neighbours=99)[0].classes) == 3
    with pytest.raises(UserError, match="at least 1 class"):
        recognizer.explain(images, classes=0)
