"""The linear probe: right where the answer is known, indifferent to what must not matter."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.evaluation import encoder_features, linear_probe
from gradmix.evaluation.linear_probe import PROBES, fit_logistic, fit_sgd, top_k_accuracy
from gradmix.models import ModelSettings, Network, build_encoder
from gradmix.views import Normalizer
from tests.training.tiny import tiny_images

every_recipe = pytest.mark.parametrize("recipe", PROBES)


def clusters(
    n: int, classes: int = 6, d: int = 10, noise: float = 0.3, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """n points around each of the first ``classes`` unit vectors."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(classes).repeat(n)
    return torch.eye(d)[y] + noise * torch.randn(n * classes, d, generator=generator), y


@every_recipe
def test_separable_classes_are_separated(recipe: str) -> None:
    (x, y), (test_x, test_y) = clusters(50, noise=0.1), clusters(20, noise=0.1, seed=1)
    result = linear_probe(x, y, test_x, test_y, recipe)
    assert (result.top1, result.top5, result.train_top1, result.recipe) == (1.0, 1.0, 1.0, recipe)


@every_recipe
def test_labels_that_mean_nothing_give_chance(recipe: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, test_x = torch.randn(2, 2000, 8, generator=generator)
    y, test_y = torch.randint(10, (2, 2000), generator=generator)
    result = linear_probe(x, y, test_x, test_y, recipe)
    assert result.top1 == pytest.approx(0.1, abs=0.03)
    assert result.top5 == pytest.approx(0.5, abs=0.05)


@every_recipe
def test_with_fewer_than_five_classes_top_5_is_all_of_them(recipe: str) -> None:
    x, y = clusters(10, classes=3, noise=3.0)
    result = linear_probe(x, y, x, y, recipe)
    assert result.top1 < 1
    assert result.top5 == 1


def test_top_k() -> None:
    logits = torch.tensor([[5.0, 4, 3, 2, 1, 0]] * 6)
    labels = torch.arange(6)  # of rank 1, 2, …, 6
    assert [top_k_accuracy(logits, labels, k) for k in (1, 2, 5, 6, 9)] == [1 / 6, 2 / 6, 5 / 6, 1, 1]


@every_recipe
def test_scale_and_offset_of_a_feature_do_not_matter(recipe: str) -> None:
    (x, y), (test_x, test_y) = clusters(40), clusters(20, seed=1)
    scale, offset = torch.logspace(-2, 2, 10), torch.linspace(-5, 5, 10)
    one = linear_probe(x, y, test_x, test_y, recipe).classifier(test_x)
    other = linear_probe(scale * x + offset, y, scale * test_x + offset, test_y, recipe)
    torch.testing.assert_close(other.classifier(scale * test_x + offset), one, rtol=1e-2, atol=1e-2)


@every_recipe
def test_a_dead_feature_is_ignored(recipe: str) -> None:
    (x, y), (test_x, test_y) = clusters(40), clusters(20, seed=1)
    x[:, 3], x[:, 4] = 0.0, 0.1  # constant in training, whatever they do in the test
    result = linear_probe(x, y, test_x, test_y, recipe)
    assert result.classifier(test_x).isfinite().all()
    assert result.classifier.weight[:, 3:5].abs().max() < 1e-4


def test_the_fast_fit_is_at_its_minimum() -> None:
    """The gradient of the objective, by hand, vanishes there."""
    x, y = clusters(30)
    x = x.double()
    found = fit_logistic(x, y, 6, c=0.5)
    z = (x - found.mean) / found.std
    error = found(x).softmax(1) - torch.eye(6, dtype=torch.float64)[y]
    assert (error.T @ z / len(z) + found.weight / (0.5 * len(z))).abs().max() < 1e-6
    assert error.mean(0).abs().max() < 1e-6


def test_one_sgd_step_is_the_gradient_of_cross_entropy() -> None:
    x, y = clusters(30)
    found = fit_sgd(x, y, 6, seed=0, epochs=1, batch_size=len(x), lr=0.5)
    weight, bias = torch.zeros(6, 10, requires_grad=True), torch.zeros(6, requires_grad=True)
    z = (x - found.mean) / found.std
    torch.nn.functional.cross_entropy(z @ weight.T + bias, y).backward()
    # Nesterov's first step: (1 + momentum) × the gradient.
    torch.testing.assert_close(found.weight, -0.5 / 10 * 1.9 * weight.grad)
    torch.testing.assert_close(found.bias, -0.5 * 1.9 * bias.grad)


def test_seeds() -> None:
    (x, y), (test_x, test_y) = clusters(100), clusters(20, seed=1)
    before = torch.get_rng_state()

    def weight(recipe: str, seed: int) -> Tensor:
        return linear_probe(x, y, test_x, test_y, recipe, seed).classifier.weight

    assert torch.equal(weight("standard", 1), weight("standard", 1))
    assert not torch.equal(weight("standard", 1), weight("standard", 2))
    assert torch.equal(weight("fast", 1), weight("fast", 2))  # nothing in it is random
    assert torch.equal(torch.get_rng_state(), before)


def test_features_are_the_encoders_in_evaluation_mode() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = build_encoder(ModelSettings("resnet10_16"), image_size=16, channels=3)
        network = Network(encoder, encoder.dim, 12).train()
    images = tiny_images(4)
    normalizer = Normalizer.fit(images.images)
    before = copy.deepcopy(network.state_dict())
    features = encoder_features(network, normalizer, images, batch_size=5)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not features.requires_grad
    network.eval()
    torch.testing.assert_close(features, encoder(normalizer(images.images)).detach(), rtol=1e-4, atol=1e-5)
    assert features.shape == (12, encoder.dim)  # before the projection, which has 12


@pytest.mark.parametrize(
    ("culprit", "message"),
    [
        ("recipe", "no probe recipe 'fst'; did you mean 'fast'"),
        ("unknown", "test labels hold -1: a probe has known classes only"),
        ("nan", "training features hold NaN"),
        ("length", r"training features \(60, 10\) and labels \(59,\)"),
        ("empty", r"test features \(0, 10\)"),
        ("dimensions", "training features have 10 dimensions, test ones 9"),
    ],
)
def test_mistakes_are_named(culprit: str, message: str) -> None:
    x, y = clusters(10)
    test_x, test_y, recipe = x.clone(), y.clone(), "fast"
    if culprit == "recipe":
        recipe = "fst"
    elif culprit == "unknown":
        test_y[3] = -1
    elif culprit == "nan":
        x[3, 3] = torch.nan
    elif culprit == "length":
        y = y[1:]
    elif culprit == "empty":
        test_x, test_y = test_x[:0], test_y[:0]
    else:
        test_x = test_x[:, 1:]
    with pytest.raises(UserError, match=message) as error:
        linear_probe(x, y, test_x, test_y, recipe)
    assert "\n" not in str(error.value)


def test_a_test_class_that_was_never_trained_counts_as_wrong() -> None:
    x, y = clusters(10, classes=3, noise=0.05)
    result = linear_probe(x, y, x, torch.where(y == 2, 7, y))
    assert result.top1 == pytest.approx(2 / 3)
