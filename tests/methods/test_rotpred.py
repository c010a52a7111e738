"""RotPred: the turns, the slow reference, both weights, and the probe that inference needs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.methods import RotPred, Views
from gradmix.methods.rotpred import RotPredSettings, rotation_loss
from gradmix.models import LinearHead, Network, NetworkSpec, RotationProbe, Sizes, turn
from gradmix.recognition import fit
from gradmix.training import load_recipe
from tests.reference.rotpred import rotation_term, turned
from tests.training.tiny import tiny_images, tiny_recipe

SIDE, CLASSES = 3, 3
DIM = 2 * SIDE * SIDE


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_method(**fields: object) -> RotPred:
    """With embeddings that are the pixels, (N, 2·3·3)."""
    torch.manual_seed(0)
    network = Network(nn.Flatten(), DIM, DIM, "none", LinearHead(DIM, CLASSES))
    network.probe = RotationProbe(Sizes(DIM, CLASSES, 2, SIDE))
    return RotPred(network.double(), RotPredSettings(**fields))  # type: ignore[arg-type]


def batch(n: int = 5) -> Views:
    images = torch.randn(n, 2, SIDE, SIDE, generator=seeded(1), dtype=torch.float64)
    return Views(images, images, torch.arange(n) % CLASSES)


def test_four_turns_are_the_identity() -> None:
    images = batch().v1
    turns = turn(images)
    assert len(turns) == 4
    for r, found in enumerate(turns):
        assert torch.equal(found, torch.stack([turned(image, r) for image in images]))
    assert torch.equal(torch.rot90(turns[3], 1, (2, 3)), images)
    assert turn(torch.tensor([[[[1, 2], [3, 4]]]]))[1].tolist() == [[[[2, 4], [1, 3]]]]


def test_the_case_worked_out_by_hand() -> None:
    certain = 100 * torch.eye(4)[None]
    assert rotation_loss(certain).item() == pytest.approx(0)
    assert rotation_loss(torch.zeros(3, 4, 4)).item() == pytest.approx(math.log(4))
    always_upright = torch.zeros(1, 4, 4)
    always_upright[:, :, 0] = 2.0  # right for the first of the four turns
    log_sum = math.log(math.exp(2) + 3)
    assert rotation_loss(always_upright).item() == pytest.approx(log_sum - 0.5)


@pytest.mark.parametrize(("how", "factor"), [("paper", 4.0), ("released", 1 / 3)])
def test_it_is_the_slow_one(how: str, factor: float) -> None:
    method, views = small_method(rotation_weight=0.7, rotation_loss=how), batch()
    found = method.step(views, seeded())
    probe = method.network.probe
    assert isinstance(probe, RotationProbe)
    with torch.no_grad():
        rows = [[probe.head(turned(image, r).flatten()).tolist() for r in range(4)] for image in views.v1]
        ce = F.cross_entropy(method.logits(views.v1.flatten(1)), views.labels)  # of the upright ones only
    assert float(found["rotation"]) == pytest.approx(rotation_term(rows), rel=1e-9)
    assert float(found["ce"]) == pytest.approx(float(ce), rel=1e-9)
    wanted = float(ce) + 0.7 * factor * rotation_term(rows)
    assert float(found["loss"]) == pytest.approx(wanted, rel=1e-9)


def test_the_probe_answers_for_the_four_turns() -> None:
    method, images = small_method(), batch().v1
    answer = method.network.answer(images)
    assert answer.extra["rotation"].shape == (5, 4, 4)
    probe = method.network.probe
    assert isinstance(probe, RotationProbe)
    for r in range(4):
        z = torch.stack([turned(image, r).flatten() for image in images])
        torch.testing.assert_close(answer.extra["rotation"][:, r], probe.head(z))


def test_the_probe_is_in_the_description() -> None:
    plain = NetworkSpec("conv7_16", "small", 3, 16, "none")
    model = load_recipe("cpu/rotpred-cifar10").model
    spec = RotPred.describe_network(plain, RotPredSettings(), model, 4)
    network = NetworkSpec.from_description(spec.describe()).build().eval()
    assert isinstance(network.probe, RotationProbe)
    assert network.probe.describe() == spec.probe == {"kind": "rotation"}
    assert network.answer(torch.zeros(2, 3, 16, 16)).extra["rotation"].shape == (2, 4, 4)


def test_a_model_decides_by_both_certainties() -> None:
    made = fit(tiny_images(12), tiny_recipe(method="rotpred", max_steps=3, holdout=0.25, false_reject=0.2))
    assert made.decision.detector.name == "rotpred"
    assert bool(made.predict(tiny_images(4, seed=5)).score.isfinite().all())


def gradients(method: RotPred) -> dict[str, Tensor]:
    return {name: p.grad for name, p in method.named_parameters() if p.grad is not None}


def test_without_weight_it_is_cross_entropy() -> None:
    method, views = small_method(rotation_weight=0.0), batch()
    losses = method.step(views, seeded())
    assert float(losses["loss"]) == float(losses["ce"])
    assert not bool(gradients(method)["network.probe.head.weight"].any())


def test_one_class_is_refused() -> None:
    images = ImageSet(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), ("cat",))
    with pytest.raises(UserError, match=r"method rotpred .* at least two"):
        small_method().check_images(images)


def test_the_recipes_are_there() -> None:
    recipe = load_recipe("cpu/rotpred-cifar10")
    assert (recipe.method, recipe.model.projection, recipe.training.max_steps) == ("rotpred", "none", 1750)
    printed = load_recipe("paper/rotpred-cifar10").flat()
    assert (printed["epochs"], printed["rotation_loss"]) == (200, "released")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"rotation_loss": "papr"}, "did you mean 'paper'"),
        ({"rotation_weight": -1.0}, "rotation_weight must not be negative"),
        ({"label_smoothing": 1.0}, "label_smoothing must lie in"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        RotPredSettings(**fields)  # type: ignore[arg-type]
