"""ARPL: the case worked out by hand, the slow reference, the radius, a run stopped and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradmix.errors import UserError
from gradmix.methods import ARPL, Views
from gradmix.methods.arpl import ARPLSettings
from gradmix.models import Network, PointsHead
from gradmix.training import Interrupted, RunFolder, load_recipe, train
from tests.reference.arpl import arpl_loss
from tests.training.interrupted import assert_equal_bits, saved, stop_after
from tests.training.tiny import tiny_images, tiny_recipe


def identity_network(points: Tensor) -> Network:
    """A network whose embedding is the image itself, (N, d, 1, 1)."""
    classes, dim = points.shape
    head = PointsHead(dim, classes, distance=1.0, dot=-1.0)
    head.points = nn.Parameter(points.clone())
    return Network(nn.Flatten(), dim, dim, "none", head)


def views(z: Tensor, labels: Tensor) -> Views:
    image = z[:, :, None, None]
    return Views(image, image, labels)


def test_the_case_worked_out_by_hand() -> None:
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    method = ARPL(identity_network(points), ARPLSettings(radius_margin="released"))
    z = torch.tensor([[1.0, 2.0]])
    losses = method.step(views(z, torch.tensor([0])), torch.Generator())
    assert method.network.classifier is not None
    assert method.network.classifier(z).tolist() == [[2.5, 1.0]]  # the prediction is class 0
    assert {name: round(float(value), 4) for name, value in losses.items()} == {
        "loss": 0.5514,
        "ce": 0.2014,
        "radius": 3.5,
    }
    assert float(method.radius.grad) == pytest.approx(-0.1)  # type: ignore[arg-type]


def random_case(n: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return z, torch.randn(3, 4, generator=generator, dtype=torch.float64), torch.arange(n) % 3


@pytest.mark.parametrize("margin", ["paper", "released"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_it_is_the_slow_one(margin: str, smoothing: float) -> None:
    z, points, labels = random_case()
    settings = ARPLSettings(radius_margin=margin, radius_weight=0.7, label_smoothing=smoothing)
    method = ARPL(identity_network(points).double(), settings)
    nn.init.constant_(method.radius, 1.2)
    method.double()
    found = method.step(views(z, labels), torch.Generator())["loss"]
    wanted = arpl_loss(z, points, 1.2, labels, 0.7, {"paper": 0.0, "released": 1.0}[margin], smoothing)
    assert float(found) == pytest.approx(wanted, rel=1e-6)


def test_the_convention_of_smoothing_is_the_settings() -> None:
    """Over the others: ε of 3 classes is torch's 1.5 ε."""
    z, points, labels = random_case()
    both = [
        ARPL(identity_network(points).double(), ARPLSettings(**fields)).step(
            views(z, labels), torch.Generator()
        )
        for fields in ({"label_smoothing": 0.2, "smoothing_spread": "others"}, {"label_smoothing": 0.3})
    ]
    assert float(both[0]["loss"]) == pytest.approx(float(both[1]["loss"]), abs=1e-12)


def test_the_radius_grows_by_the_share_of_images_outside_it() -> None:
    z, points, labels = random_case()
    method = ARPL(identity_network(points).double(), ARPLSettings(radius_margin="paper")).double()
    distances = ((z - points[labels]) ** 2).mean(1)
    nn.init.constant_(method.radius, float(distances.median()))
    method.step(views(z, labels), torch.Generator())
    share = float((distances > method.radius.detach()).double().mean())
    assert 0 < share < 1
    assert float(method.radius.grad) == pytest.approx(-0.1 * share)  # type: ignore[arg-type]


def test_with_points_at_the_origin_all_logits_are_the_squared_length() -> None:
    z, points, _ = random_case()
    network = identity_network(torch.zeros_like(points)).double()
    logits = network.logits(z)
    torch.testing.assert_close(logits, (z**2).mean(1, keepdim=True).expand(-1, 3))


def test_stopped_and_resumed_equals_undisturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, recipe = tiny_images(8), tiny_recipe(method="arpl", optimizer="sgd", lr=0.05)
    whole = RunFolder.create(tmp_path / "whole", recipe, {})
    stopped = RunFolder.create(tmp_path / "stopped", recipe, {})
    stop_after(monkeypatch, 8, 11)  # the whole run's six steps come first
    trained = train(images, recipe, whole)
    for _ in range(2):
        with pytest.raises(Interrupted):
            train(images, recipe, stopped)
    train(images, recipe, stopped)
    assert_equal_bits(saved(whole), saved(stopped))
    assert float(saved(whole)["method"]["radius"]) > 0
    assert isinstance(trained.network.classifier, PointsHead)


def test_the_recipe_is_there() -> None:
    recipe = load_recipe("cpu/arpl-cifar10")
    assert (recipe.method, recipe.model.projection, recipe.training.max_steps) == ("arpl", "none", 2350)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"radius_margin": "papr"}, "did you mean 'paper'"),
        ({"radius_weight": -1.0}, "radius_weight must not be negative"),
        ({"logit_temperature": 0.0}, "logit_temperature must be positive"),
        ({"label_smoothing": 1.0}, "label_smoothing must lie in"),
        ({"smoothing_spread": "al"}, "did you mean 'all'"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        ARPLSettings(**fields)  # type: ignore[arg-type]
