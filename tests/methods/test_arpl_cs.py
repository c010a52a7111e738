"""ARPL-CS: confusion by hand, whose gradients go where, two sets of statistics, runs stopped and resumed."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.methods import ARPL, ARPLCS, Progress, Views
from gradmix.methods.arpl_cs import ARPLCSSettings, confusion
from gradmix.training import RunFolder, load_recipe, train
from gradmix.training.session import build_method
from gradmix.views import Normalizer
from tests.methods.saved_model import save_and_load
from tests.reference import arpl_cs as reference
from tests.training.interrupted import assert_equal_bits, saved, train_whole_and_stopped
from tests.training.tiny import tiny_images, tiny_recipe

IMAGES = tiny_images(8)  # 24 images: 3 steps per epoch
SMALL: dict[str, Any] = {"method": "arpl-cs", "gan_width": 16, "noise_dim": 4, "optimizer": "sgd", "lr": 0.05}
NORMALIZER = Normalizer((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))


def make(method: str = "arpl-cs", **fields: Any) -> Any:
    own = SMALL if method == "arpl-cs" else {"method": method}
    return build_method(tiny_recipe(**{**own, **fields}), IMAGES.class_names, NORMALIZER)


def views(step: int = 0, epoch: int = 0) -> Views:
    x = NORMALIZER(IMAGES.images[::2]).contiguous(memory_format=torch.channels_last)
    return Views(x, x, IMAGES.labels[::2], Progress(step, 100, epoch))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def test_the_case_worked_out_by_hand() -> None:
    distances = torch.tensor([[2.5, 2.0]], dtype=torch.float64)
    assert [round(p, 4) for p in distances.softmax(1)[0].tolist()] == [0.6225, 0.3775]
    assert float(confusion(distances)) == pytest.approx(0.5154, abs=5e-5)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_it_lies_between_uniform_and_certain(classes: int) -> None:
    assert float(confusion(torch.full((5, classes), 3.0).double())) == pytest.approx(1 / classes, rel=1e-12)
    certain = 1000.0 * torch.eye(classes)
    assert float(confusion(certain)) == 1


def test_it_is_the_slow_one_with_the_mean_inside() -> None:
    distances = 3 * torch.rand(7, 4, generator=generator(), dtype=torch.float64)
    assert float(confusion(distances)) == pytest.approx(reference.confusion(distances), rel=1e-12)
    each = torch.stack([confusion(row[None]) for row in distances])
    assert float(confusion(distances)) == pytest.approx(float(each.log().mean().exp()), rel=1e-12)
    assert abs(float(confusion(distances)) - float(each.mean())) > 1e-4


def test_a_plain_epoch_is_arpl() -> None:
    plain, ours = make("arpl", optimizer="sgd", lr=0.05), make()
    before = deepcopy(ours.state_dict())
    wanted = plain.step(views(epoch=1), generator())
    found = ours.step(views(epoch=1), generator())
    assert found == wanted
    for name, parameter in plain.named_parameters():
        assert torch.equal(ours.get_parameter(name).grad, parameter.grad), name
    after = ours.state_dict()
    untouched = [k for k in after if not k.startswith("network.")]
    assert_equal_bits({k: before[k] for k in untouched}, {k: after[k] for k in untouched})


@pytest.mark.parametrize(
    ("every", "expected"),
    [(0, [True] * 3 + [False] * 3 + [True]), (1, [True] * 7), (3, [True, False, False] * 2 + [True])],
)
def test_which_steps_confuse(every: int, expected: list[bool]) -> None:
    method = make(confuse_every=every)
    assert [method.is_confusing(Progress(s, 7, s // 3)) for s in range(7)] == expected


def running(module: nn.Module) -> dict[str, Tensor]:
    return {name: b.clone() for name, b in module.named_buffers() if "running" in name}


def test_real_and_made_images_have_statistics_of_their_own() -> None:
    plain, ours = make("arpl"), make()
    fresh = running(ours.made_domain)
    plain.step(views(), generator())
    ours.step(views(), generator())
    assert_equal_bits(running(ours.network), running(plain.network))
    moved = running(ours.made_domain)
    assert all(not torch.equal(moved[name], fresh[name]) for name in fresh)
    tracked = [int(b) for n, b in ours.made_domain.named_buffers() if n.endswith("num_batches_tracked")]
    assert set(tracked) == {2}  # the generator's step and the network's


def test_the_players_move_by_their_own_losses_only() -> None:
    method = make()
    before = deepcopy(method.state_dict())
    method.train_players(views().v1, generator())
    assert all(p.grad is None for p in method.parameters())
    for name, value in method.state_dict().items():
        if isinstance(value, Tensor) and "running" not in name and "num_batches" not in name:
            moved = name.startswith(("generator.", "discriminator."))
            assert torch.equal(value, before[name]) != moved, name


def test_a_step_leaves_no_gradient_in_the_players() -> None:
    method = make()
    method.step(views(), generator())
    for name, parameter in method.named_parameters():
        assert (parameter.grad is None) == name.startswith(("generator.", "discriminator.")), name
    assert all(float(p.grad.abs().sum()) > 0 for p in method.made_domain.parameters())


def test_the_networks_gradient_is_that_of_the_formula() -> None:
    """With the players at rest (a learning rate of nearly nothing), step by step."""
    method, plain = make(gan_lr=1e-30), make(gan_lr=1e-30)
    found = method.step(views(), generator())
    source, v = generator(), views()
    with torch.no_grad():
        made = plain.make_images(v.v1, source)  # of the players
        plain.embed_made(made)
        made = plain.make_images(v.v1, source)  # fresh noise
    head = plain.network.classifier
    loss = ARPL.losses(plain, v, source)["loss"] + 0.1 * confusion(head.distances(plain.embed_made(made)))
    loss.backward()
    assert float(found["loss"]) == pytest.approx(loss.item(), rel=1e-6)
    for name, parameter in plain.named_parameters():
        if parameter.grad is not None and not name.startswith(("generator.", "discriminator.")):
            torch.testing.assert_close(method.get_parameter(name).grad, parameter.grad, msg=name)


def test_made_images_are_normalized_as_real_ones_are() -> None:
    method = make()
    x = method.make_images(views().v1, generator()).detach()
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (NORMALIZER.mean, NORMALIZER.std))
    pixels = x * std + mean
    assert x.shape == views().v1.shape
    assert float(pixels.min()) > -1e-5
    assert float(pixels.max()) < 1 + 1e-5
    assert float(x.min()) < 0  # which a sigmoid is not
    small = torch.zeros(4, 3, 8, 8)
    assert method.make_images(small, generator()).shape == small.shape


def test_both_players_push_the_right_way() -> None:
    torch.manual_seed(0)
    method = make(gan_lr=0.01, confuse_weight=0.0)
    x, source = views().v1, generator()
    losses = [method.train_players(x, source) for _ in range(10)]
    assert losses[-1][0] < losses[0][0]  # the discriminator learns faster
    method = make(gan_lr=0.01, confuse_weight=1000.0)
    nn.init.normal_(method.points.points, 0, 3.0)
    with torch.no_grad():
        first = confusion(method.points.distances(method.embed_made(method.make_images(x, generator()))))
        for _ in range(15):
            with torch.enable_grad():
                method.train_players(x, generator())
        last = confusion(method.points.distances(method.embed_made(method.make_images(x, generator()))))
    assert last < first


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("every", [0, 2])
def test_stopped_and_resumed(stop: int, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tiny_recipe(**SMALL, confuse_every=every)
    whole, stopped = train_whole_and_stopped(IMAGES, recipe, stop, tmp_path, monkeypatch)
    state = saved(whole)["method"]
    steps = {float(s["step"]) for s in state["generator._extra_state"]["state"].values()}
    assert steps == {3.0}
    assert [row.keys() for row in stopped.history()] == [row.keys() for row in whole.history()]


def test_losses_that_some_steps_have_are_averaged_over_those(tmp_path: Path) -> None:
    rows = {}
    for log_every in (1, 6):
        recipe = tiny_recipe(**{**SMALL, "confuse_every": 4, "log_every": log_every})
        run = RunFolder.create(tmp_path / str(log_every), recipe, {})
        train(IMAGES, recipe, run)
        rows[log_every] = run.history()
    confused = [row["confusion"] for row in rows[1] if "confusion" in row]
    assert len(confused) == 2
    assert rows[6][0]["confusion"] == pytest.approx(sum(confused) / 2)
    assert rows[6][0]["loss"] == pytest.approx(sum(row["loss"] for row in rows[1]) / 6)


def test_the_model_file_has_no_player_in_it(tmp_path: Path) -> None:
    again = save_and_load(IMAGES, tiny_recipe(**SMALL, max_steps=4), tmp_path)
    assert again.network.state_dict().keys() == make("arpl").network.state_dict().keys()
    assert again.decision.detector.name == "mls"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"confuse_weight": -1.0}, "confuse_weight must not be negative"),
        ({"confuse_every": -1}, "confuse_every must be 0"),
        ({"noise_dim": 0}, "noise_dim must be at least 1"),
        ({"gan_width": 12}, "gan_width must be a power of 2"),
        ({"gan_lr": 0.0}, "gan_lr must be positive"),
        ({"radius_weight": -1.0}, "radius_weight"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        ARPLCSSettings(**fields)


def test_one_class_is_refused() -> None:
    images = ImageSet(IMAGES.images[:8], torch.zeros(8, dtype=torch.int64), ("bar",))
    with pytest.raises(UserError, match="at least two classes"):
        train(images, tiny_recipe(**SMALL))


def test_the_recipes_are_there() -> None:
    recipe = load_recipe("cpu/arpl-cs-cifar10")
    assert (recipe.method, recipe.objective.confuse_every, recipe.objective.gan_width) == ("arpl-cs", 4, 128)
    paper = load_recipe("paper/arpl-cs-cifar10")
    assert isinstance(paper.objective, ARPLCSSettings)
    assert (paper.objective.confuse_every, paper.model.encoder, ARPLCS.detector) == (0, "vgg32", "mls")
