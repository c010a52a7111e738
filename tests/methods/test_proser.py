"""PROSER: the case worked out by hand, the slow reference, who is mixed with whom, and its two stages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.methods import PROSER, Progress, Views
from gradmix.methods.proser import PAIRS, PROSERSettings, draw_partners, mixed_loss, placeholder_losses
from gradmix.mixing import draw_mix
from gradmix.models import DummiesHead, Network, StagedEncoder, build_head
from gradmix.training import RunFolder, load_recipe, session, train
from tests.reference.proser import proser_terms
from tests.training.tiny import tiny_images, tiny_recipe


class TwoLayers(StagedEncoder):
    """Doubles in its first stage, squares in its second."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layer_names, self.dim = {"first": "a", "second": "b"}, dim
        self.scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

    def enter(self, x: Tensor) -> Tensor:
        return x

    def run_stage(self, i: int, maps: Tensor) -> Tensor:
        return self.scale * maps if i == 0 else maps.square()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_method(settings: PROSERSettings, classes: int = 3, dim: int = 4) -> PROSER:
    torch.manual_seed(0)
    head = DummiesHead(dim, classes, settings.dummies)
    return PROSER(Network(TwoLayers(dim), dim, dim, "none", head).double(), settings).double()


def batch(n: int, stage: str = "placeholders") -> Views:
    images = torch.randn(n, 4, 1, 1, generator=seeded(1), dtype=torch.float64)
    return Views(images, images, torch.arange(n) % 3, Progress(stage=stage))


def test_the_case_worked_out_by_hand() -> None:
    logits, dummies = torch.tensor([[2.0, 1.0]]), torch.tensor([[0.5]])
    known, runner_up = placeholder_losses(logits, dummies, torch.tensor([0]))
    assert float(known) == pytest.approx(0.4644, abs=5e-5)
    assert float(runner_up) == pytest.approx(0.9741, abs=5e-5)  # log(1 + e^0.5)
    mixed = mixed_loss(logits, dummies, torch.tensor([True]))
    assert float(mixed) == pytest.approx(float(known) + 1.5)  # the same softmax; the target is 1.5 lower
    assert float(mixed_loss(logits, dummies, torch.tensor([False]))) == 0


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize(("n", "dummies"), [(12, 1), (13, 3)])
def test_it_is_the_slow_one(pairs: str, n: int, dummies: int) -> None:
    settings = PROSERSettings(dummies, 0.6, 0.3, 2.0, mix_pairs=pairs)
    method, views = small_method(settings), batch(n)
    found = method.step(views, seeded())
    half, draws = n // 2, seeded()
    order, used = draw_partners(views.labels, half, pairs, draws)
    lam = draw_mix(2.0, draws)
    rows = [2 * image.flatten() for image in views.v1]
    for i in range(half):
        if used[i]:
            rows[i] = 2 * (lam * views.v1[i] + (1 - lam) * views.v1[order[i]]).flatten()
    z = torch.stack(rows).square()
    head = method.network.classifier
    assert isinstance(head, DummiesHead)
    with torch.no_grad():
        wanted = proser_terms(head(z), head.dummies(z), views.labels.tolist(), half, used.tolist())
    for name, value in zip(("ce", "dummy", "mixed"), wanted, strict=True):
        assert float(found[name]) == pytest.approx(value, rel=1e-6), name
    assert float(found["loss"]) == pytest.approx(wanted[0] + 0.6 * wanted[1] + 0.3 * wanted[2], rel=1e-6)


def test_without_the_other_terms_it_is_cross_entropy_of_one_class_more() -> None:
    method, views = small_method(PROSERSettings(dummy_weight=0.0, mixed_weight=0.0)), batch(12)
    found = method.step(views, seeded())["loss"]
    head = method.network.classifier
    assert isinstance(head, DummiesHead)
    z = (2 * views.v1.flatten(1)).square()[6:]
    answers = torch.cat([head(z), head.dummies(z)], 1)
    assert float(found) == pytest.approx(F.cross_entropy(answers, views.labels[6:]).item())


def test_the_first_stage_is_cross_entropy() -> None:
    method, views = small_method(PROSERSettings()), batch(12, "classify")
    losses = method.step(views, seeded())
    head = method.network.classifier
    assert isinstance(head, DummiesHead)
    wanted = F.cross_entropy(head((2 * views.v1.flatten(1)).square()), views.labels)
    assert list(losses) == ["loss"]
    assert float(losses["loss"]) == pytest.approx(wanted.item())
    assert head.dummies.weight.grad is None


@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 2], [0, 0, 1, 1], [5, 9]])
def test_partners_are_of_another_class(labels: list[int]) -> None:
    known = torch.tensor(labels)
    seen = set()
    for seed in range(20):
        partner, has = draw_partners(known, len(known), "paper", seeded(seed))
        assert sorted(partner.tolist()) == list(range(len(known)))
        assert bool(has.all())
        assert bool((known[partner] != known).all())
        seen.add(tuple(partner.tolist()))
    assert len(seen) > 1 or len(known) == 2


def test_who_cannot_be_paired_is_left_out() -> None:
    labels = torch.tensor([0, 0, 0, 0, 1, 2, 7, 7])  # the last two are of the other half
    partner, has = draw_partners(labels, 6, "paper", seeded())
    assert sorted(partner.tolist()) == list(range(8))
    assert int(has.sum()) == 4  # both others, and two of the four: 2·4 − 6 are left over
    assert partner[6:].tolist() == [6, 7]
    assert not bool(has[6:].any())
    _, all_equal = draw_partners(torch.zeros(4, dtype=torch.int64), 4, "paper", seeded())
    assert not bool(all_equal.any())
    _, any_two = draw_partners(torch.zeros(4, dtype=torch.int64), 2, "released", seeded())
    assert any_two.tolist() == [True, True, False, False]


def test_a_batch_of_one_class_has_no_mixes_and_no_nan() -> None:
    method, views = small_method(PROSERSettings()), batch(8)
    losses = method.step(Views(views.v1, views.v1, torch.zeros(8, dtype=torch.int64)), seeded())
    assert float(losses["mixed"]) == 0
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)


def test_the_placeholders_rest_in_the_first_stage_and_the_rate_is_its_own(tmp_path: Path) -> None:
    recipe = tiny_recipe(method="proser", finetune_share=0.5, finetune_lr=0.02, log_every=1)
    run = RunFolder.create(tmp_path / "run", recipe, {})
    dummies: list[Tensor] = []

    def watch(trained: session.Trained, total: int) -> None:
        assert isinstance(trained.network.classifier, DummiesHead)
        dummies.append(trained.network.classifier.dummies.weight.detach().clone())

    train(tiny_images(8), recipe, run, watch=watch)
    assert torch.equal(dummies[0], dummies[2])
    assert not torch.equal(dummies[2], dummies[3])
    assert [row["stage"] for row in run.history()] == ["classify"] * 3 + ["placeholders"] * 3
    assert [row["lr"] for row in run.history()[3:]] == [0.02] * 3


def test_its_head() -> None:
    head = build_head({"kind": "dummies", "classes": 3, "dummies": 2, "bias": False}, dim=4)
    z = torch.randn(5, 4)
    assert head(z).shape == (5, 3)
    assert head.extra(z)["dummies"].shape == (5, 2)
    assert head.describe() == {"kind": "dummies", "classes": 3, "dummies": 2, "bias": False}


def test_the_state_holds_nothing_twice() -> None:
    method = small_method(PROSERSettings())
    assert all(key.startswith("network.") for key in method.state_dict())
    assert len({id(p) for p in method.parameters()}) == len(list(method.named_parameters()))


def test_the_middle_layer_is_where_it_mixes_unless_told() -> None:
    recipe = tiny_recipe(method="proser")
    assert session.build_method(recipe, ("a", "b")).network.encoder.layer_names  # type: ignore[truthy-bool]
    with pytest.raises(UserError, match="no mix_layer 'conv22'; did you mean 'conv2_2'"):
        session.build_method(tiny_recipe(method="proser", mix_layer="conv22"), ("a", "b"))
    with pytest.raises(UserError, match="method proser enters the encoder at its layers"):
        PROSER(Network(nn.Flatten(), 4, 4, "none", DummiesHead(4, 2)), PROSERSettings())


def test_one_class_is_refused() -> None:
    images = ImageSet(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), ("cat",))
    with pytest.raises(UserError, match=r"method proser .* at least two"):
        small_method(PROSERSettings()).check_images(images)


def test_the_recipes_are_there() -> None:
    recipe = load_recipe("cpu/proser-cifar10")
    assert (recipe.method, recipe.model.projection, recipe.training.max_steps) == ("proser", "none", 2350)
    assert load_recipe("paper/proser-cifar10").training.epochs == 70


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"mix_pairs": "papr"}, "did you mean 'paper'"),
        ({"dummies": 0}, "dummies must be at least 1"),
        ({"dummy_weight": -1.0}, "dummy_weight must not be negative"),
        ({"mix_alpha": 0.0}, "mix_alpha must be positive"),
        ({"finetune_share": 1.0}, "finetune_share must lie between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        PROSERSettings(**fields)  # type: ignore[arg-type]
