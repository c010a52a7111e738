"""A frozen encoder: what is fitted to its features, how often it sees an image, how few images will do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.evaluation.open_set import applicable_detectors, evaluate_open_set
from gradmix.models import Network
from gradmix.models.linear_fits import fit_logistic, fit_whitening
from gradmix.models.resnet import ResNet
from gradmix.recipe import load_recipe
from gradmix.recognition import Recognizer, fit, load, save
from tests.training.tiny import CLASSES, tiny_images, tiny_recipe

pytestmark = pytest.mark.filterwarnings("ignore:recipe frozen without trained weights")
FIELDS = {"method": "frozen", "holdout": 0.33, "false_reject": 0.1, "score_normalize": "none"}


def frozen(each: int = 20, **fields: object) -> Recognizer:
    return fit(tiny_images(each), tiny_recipe(**FIELDS | {"whiten": True, "train_head": True} | fields))


def draw_features(n: int = 200, dim: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes whose images differ by far the most along the first direction, which tells nothing."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 3
    noise = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    noise[:, 0] *= 20
    means = torch.zeros(3, dim, dtype=torch.float64)
    means[range(3), [1, 2, 3]] = 4.0
    return means[labels] + noise, labels


def test_after_whitening_classes_spread_alike_in_all_directions() -> None:
    x, y = draw_features(3000)
    weight, bias = fit_whitening(x, y)
    z = x @ weight.double().T + bias.double()
    means = torch.stack([z[y == label].mean(0) for label in range(3)])
    spread = torch.cov((z - means[y]).T)
    torch.testing.assert_close(spread / spread.diagonal().mean(), torch.eye(6).double(), rtol=0, atol=0.1)


@pytest.mark.parametrize("dim", [6, 60])
def test_whitening_is_the_inverse_root_of_the_shrunken_covariance(dim: int) -> None:
    """By hand: Σ of Ledoit and Wolf's formula, written out, and W Σ W = a multiple of the identity."""
    x, y = draw_features(40, dim)
    means = torch.stack([x[y == label].mean(0) for label in range(3)])
    around = x - means[y]
    n, d = around.shape
    sample = around.T @ around / n
    mu = sample.diagonal().mean()
    delta = (sample - mu * torch.eye(d)).square().sum() / d
    beta = sum((torch.outer(row, row) - sample).square().sum() for row in around) / d / n**2
    share = min(beta, delta) / delta
    shrunken = (1 - share) * sample + share * mu * torch.eye(d).double()
    weight, bias = (values.double() for values in fit_whitening(x, y))
    white = weight @ shrunken @ weight
    torch.testing.assert_close(white / white[0, 0], torch.eye(d).double(), rtol=0, atol=1e-4)
    torch.testing.assert_close(bias, -0.75 * weight @ means.mean(0), rtol=0, atol=1e-4)


def test_whitening_of_one_image_many_times_is_finite() -> None:
    weight, bias = fit_whitening(torch.ones(6, 4), torch.tensor([0, 0, 0, 1, 1, 1]))
    assert weight.isfinite().all()
    assert bias.isfinite().all()


def test_the_folded_classifier_gives_the_same_logits() -> None:
    x, y = draw_features()
    classifier = fit_logistic(x, y, 3, 0.01)
    weight, bias = classifier.fold()
    torch.testing.assert_close(x @ weight.T + bias, classifier(x))


def test_what_is_fitted_is_in_the_network_and_in_its_file(tmp_path: Path) -> None:
    recognizer = frozen()
    assert recognizer.spec.projection == "whiten"
    assert isinstance(recognizer.network.projection, torch.nn.Linear)
    weight = recognizer.network.projection.weight
    assert not torch.equal(weight, torch.eye(len(weight)))
    new = tiny_images(6, (*CLASSES, "cross"), seed=5)
    save(recognizer, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    ours, theirs = recognizer.outputs(new), loaded.outputs(new)
    assert torch.equal(ours.features, theirs.features)
    assert ours.logits is not None
    assert theirs.logits is not None
    assert torch.equal(ours.logits, theirs.logits)
    before = tiny_images(20)
    learned = recognizer.outputs(before).logits
    assert learned is not None
    assert (learned.argmax(1) == before.labels).double().mean() > 0.6  # the head was trained; guessing: 1/3
    assert loaded.with_detector("mls").predict(new).label.tolist().count(-1) < len(new)


def test_the_index_holds_what_the_network_says() -> None:
    """Fitted from features that were computed once: the same as through the finished network."""
    images = tiny_images(20)
    recognizer = fit(images, tiny_recipe(**FIELDS | {"whiten": True}))
    seen = recognizer.outputs(images).features
    kept = recognizer.index.training_features().features
    nearest = (kept @ seen.T).amax(dim=1)  # each indexed image is one of those
    torch.testing.assert_close(nearest, torch.ones(len(kept)), rtol=0, atol=1e-5)


def test_the_encoder_sees_every_image_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    forward = ResNet.forward
    monkeypatch.setattr(ResNet, "forward", lambda self, x: (seen.append(len(x)), forward(self, x))[1])
    monkeypatch.setenv("GRADMIX_CACHE_GB", "0")
    frozen(each=20)
    assert sum(seen) == 20 * len(CLASSES)


def test_with_few_images_none_is_held_out_and_some_are_rejected() -> None:
    recognizer = frozen(each=5)  # 15 in all; a third of them would be too few for a threshold
    assert recognizer.calibration is None
    assert recognizer.count_images(CLASSES[0]) == 5
    assert recognizer.threshold.guaranteed  # 15 left-out scores are enough for one in ten
    assert recognizer.threshold.value > -torch.inf
    assert isinstance(recognizer.network.projection, torch.nn.Linear)
    weight = recognizer.network.projection.weight
    # Images that a whitening was fitted to lie too near to each other for a threshold: there is none.
    assert torch.equal(weight, torch.eye(len(weight)))


def test_false_rejects_stay_below_the_rate() -> None:
    """On average over draws of the images, as promised; whitening took no part in the held-out ones."""
    rejected = total = 0
    for seed in range(6):
        recognizer = fit(tiny_images(30, seed=seed), tiny_recipe(**FIELDS | {"whiten": True, "seed": seed}))
        found = recognizer.predict(tiny_images(30, seed=100 + seed))
        rejected, total = rejected + int((found.label == -1).sum()), total + len(found.label)
    assert rejected / total < 0.1 + 3 * (0.1 * 0.9 / 180) ** 0.5  # 180 held-out images in all


def test_a_class_can_be_taught() -> None:
    recognizer = frozen(each=30)
    crosses = tiny_images(5, ("cross",), seed=7)
    taught = recognizer.enroll("cross", ImageSet(crosses.images, crosses.labels, ("cross",)))
    found = taught.predict(tiny_images(20, ("cross",), seed=8))
    assert found.names().count("cross") > 10


def test_a_head_is_trained_or_taken() -> None:
    with pytest.raises(UserError, match="train_head and init_head"):
        fit(tiny_images(20), tiny_recipe(**FIELDS | {"train_head": True, "init": "x", "init_head": True}))


def test_the_recipe_for_photographs() -> None:
    recipe = load_recipe("photos")
    assert (recipe.method, recipe.model.encoder, recipe.model.init) == (
        "frozen",
        "efficientnet_lite0",
        "pretrained",
    )
    assert recipe.views.normalize == "tf"


def test_a_whitening_starts_as_the_identity() -> None:
    network = Network(torch.nn.Flatten(), 12, 0, "whiten")
    images = torch.rand(2, 3, 2, 2)
    assert torch.equal(network(images), images.flatten(1))


def test_a_class_that_came_and_went_leaves_the_logits_of_the_held_out_images() -> None:
    """Scores that learn from these logits (``temperature``) are listed before and after, and not between."""
    trained = frozen()
    taught = trained.enroll("cross", tiny_images(5, ("cross",), 3))
    back = taught.forget("cross")
    assert trained.calibration is not None
    assert trained.calibration.logits is not None
    assert back.calibration is not None
    assert back.calibration.logits is not None
    assert torch.equal(back.calibration.logits, trained.calibration.logits)
    assert applicable_detectors(back) == applicable_detectors(trained)
    assert "temperature" in applicable_detectors(back)
    assert "temperature" not in applicable_detectors(taught)


def test_scores_that_lack_the_logits_of_the_held_out_images_are_not_listed() -> None:
    """As in a file of an earlier version, which lost them when an enrolled class was forgotten."""
    model = frozen()
    assert model.calibration is not None
    lacking = replace(model, calibration=replace(model.calibration, logits=None))
    assert "temperature" not in applicable_detectors(lacking)
    lines = evaluate_open_set(lacking, tiny_images(5), tiny_images(5, ("cross",))).metrics
    assert "knn" in lines
