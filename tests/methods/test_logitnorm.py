"""LogitNorm: the case worked out by hand, the slow reference, and the limits of a loss of directions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.methods import LogitNorm, Views
from gradmix.methods.logitnorm import LogitNormSettings, logitnorm_loss
from gradmix.models import LinearHead, Network
from gradmix.training import load_recipe
from tests.reference.logitnorm import logitnorm


def random_logits(n: int = 6, classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits, torch.arange(n) % classes


def test_the_case_worked_out_by_hand() -> None:
    logits = torch.tensor([[3.0, 4.0]], dtype=torch.float64)  # of length 5
    for temperature in (1.0, 0.04):
        wanted = math.log(1 + math.exp((0.6 - 0.8) / temperature))
        found = logitnorm_loss(logits, torch.tensor([1]), temperature)
        assert float(found) == pytest.approx(wanted, rel=1e-5)  # 1e-7 is added to the length
    assert float(logitnorm_loss(logits, torch.tensor([0]), 0.04)) == pytest.approx(5.0067, abs=5e-5)


@pytest.mark.parametrize("temperature", [0.04, 1.0])
def test_it_is_the_slow_one(temperature: float) -> None:
    z, labels = random_logits()
    head = LinearHead(4, 4, bias=False)
    head.weight = nn.Parameter(torch.eye(4))
    settings = LogitNormSettings(temperature)
    method = LogitNorm(Network(nn.Flatten(), 4, 4, "none", head).double(), settings)
    image = z[:, :, None, None]
    found = method.step(Views(image, image, labels), torch.Generator())["loss"]
    assert float(found) == pytest.approx(logitnorm(z, labels, temperature), rel=1e-5)


def test_the_length_of_the_logits_counts_for_nothing() -> None:
    logits, labels = random_logits()
    loss = logitnorm_loss(logits, labels, 0.04)
    torch.testing.assert_close(logitnorm_loss(1000 * logits, labels, 0.04), loss, rtol=1e-5, atol=0)
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(logitnorm_loss(leaf, labels, 0.04), leaf)
    along = (gradient * logits).sum(1).abs() / (gradient.norm(dim=1) * logits.norm(dim=1))
    assert float(along.max()) < 1e-5


@pytest.mark.parametrize("classes", [2, 6, 100])
def test_its_limits(classes: int) -> None:
    labels = torch.tensor([0])
    best = torch.full((1, classes), -1.0 / (classes - 1), dtype=torch.float64)
    best[0, 0] = 1.0  # as far from the others as unit vectors allow
    floor = math.log1p((classes - 1) * math.exp(-math.sqrt(classes / (classes - 1)) / 0.5))
    assert float(logitnorm_loss(best, labels, 0.5)) == pytest.approx(floor, rel=1e-5)
    assert float(logitnorm_loss(best, labels, 1e9)) == pytest.approx(math.log(classes), rel=1e-6)


def test_logits_that_are_all_zero_have_a_finite_gradient() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    loss = logitnorm_loss(logits, torch.tensor([0]), 0.04)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(math.log(3))
    assert bool(gradient.isfinite().all())


def test_one_class_is_refused() -> None:
    images = ImageSet(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), ("cat",))
    method = LogitNorm(Network(nn.Flatten(), 4, 4, "none", LinearHead(4, 2)), LogitNormSettings())
    with pytest.raises(UserError, match=r"method logitnorm .* at least two"):
        method.check_images(images)


def test_the_recipes_are_there() -> None:
    recipe = load_recipe("cpu/logitnorm-cifar10")
    assert (recipe.method, recipe.model.projection, recipe.training.max_steps) == ("logitnorm", "none", 2350)
    printed = load_recipe("paper/logitnorm-cifar10").flat()
    assert (printed["logitnorm_temperature"], printed["milestones"]) == (0.04, [0.4, 0.7])


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_wrong_temperature_is_refused(temperature: float) -> None:
    with pytest.raises(UserError, match="logitnorm_temperature must be positive"):
        LogitNormSettings(temperature)
