"""GRROSR: turns, both stages' losses, what is frozen, runs stopped around the boundary, the model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradmix.cli import main
from gradmix.distributed import SINGLE_PROCESS, ProcessGroup
from gradmix.distributed.gradients import average_gradients
from gradmix.errors import UserError
from gradmix.export import export_model
from gradmix.methods import GRROSR, METHODS, Progress, Views
from gradmix.methods.grrosr import GRROSRSettings, turn
from gradmix.models import Reconstruct
from gradmix.recognition import fit, load, save
from gradmix.training import Trained, load_recipe, train
from gradmix.training.session import build_method
from tests.processes import in_processes
from tests.reference.grrosr import mean_cross_entropy, reconstruction_error, turned_pair
from tests.training.interrupted import train_whole_and_stopped
from tests.training.tiny import make_photos, tiny_images, tiny_recipe

IMAGES = tiny_images(8)  # 24 images, 3 steps per epoch, 6 steps: 3 of each stage


def recipe_of(**fields: Any) -> Any:
    own = {"encoder": "conv7_16", "autoencoder_widths": [8, 4], "autoencoder_share": 0.5, "log_every": 1}
    return tiny_recipe(**{"method": "grrosr", **own, **fields})


def method_of(group: ProcessGroup = SINGLE_PROCESS, **fields: Any) -> tuple[GRROSR, Reconstruct]:
    method = build_method(recipe_of(**fields), ("a", "b", "c"), group=group).double()
    assert isinstance(method, GRROSR)
    assert isinstance(method.network.encoder, Reconstruct)
    return method, method.network.encoder


def random_views(stage: str, rows: slice = slice(None)) -> Views:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(8, 3, 16, 16, generator=generator, dtype=torch.float64)[rows]
    return Views(x, x, torch.arange(8) % 3, Progress(stage=stage))


def test_four_quarter_turns_are_none() -> None:
    images = torch.arange(4 * 2 * 9.0).view(4, 2, 3, 3)
    quarters = torch.tensor([0, 1, 2, 3])
    once = turn(images, quarters)
    assert torch.equal(turn(once, (4 - quarters) % 4), images)
    four = images
    for _ in range(4):
        four = turn(four, torch.ones(4, dtype=torch.long))
        assert torch.equal(four[0], images[0]) == (_ == 3)
    for image, q, found in zip(images, quarters.tolist(), once, strict=True):
        assert torch.equal(found, turned_pair(image[:1], image[1:], q))


@pytest.mark.parametrize("how", ["absolute", "squared"])
def test_the_first_stage_is_the_slow_one(how: str) -> None:
    method, body = method_of(reconstruction=how)
    views = random_views("autoencoder")
    wanted = reconstruction_error(views.v1, body.autoencoder(views.v1).detach(), how)
    losses = method.step(views, torch.Generator())
    assert {name: float(v) for name, v in losses.items()} == pytest.approx(
        {"loss": wanted, "reconstruction": wanted}
    )
    with_gradient = {name for name, p in method.named_parameters() if p.grad is not None}
    assert with_gradient == {
        f"network.encoder.autoencoder.{name}" for name, _ in body.autoencoder.named_parameters()
    }


@pytest.mark.parametrize("how", ["image", "pair"])
def test_the_second_stage_is_the_slow_one(how: str) -> None:
    method, body = method_of(rotation_weight=0.3, projection="none", turned=how)
    body.autoencoder.eval()
    views, generator = random_views("classify"), torch.Generator().manual_seed(2)
    quarters = torch.randint(4, (8,), generator=torch.Generator().manual_seed(2))
    assert len(set(quarters.tolist())) == 4
    made = body.autoencoder(views.v1)
    rows = zip(views.v1, made, quarters.tolist(), strict=True)
    turned = torch.stack([turned_pair(x, its, q) for x, its, q in rows])
    if how == "image":
        turned = torch.cat([turned[:, :3], body.autoencoder(turned[:, :3])], dim=1)
    logits, turns = method.logits(body(views.v1)), method.rotation(body.encoder(turned))
    ce, rotation = mean_cross_entropy(logits, views.labels), mean_cross_entropy(turns, quarters)
    losses = {name: float(value) for name, value in method.step(views, generator).items()}
    assert losses == pytest.approx({"loss": ce + 0.3 * rotation, "ce": ce, "rotation": rotation})


def test_each_stage_leaves_the_other_parts_alone() -> None:
    states: list[dict[str, Tensor]] = []

    def watch(trained: Trained, total: int) -> None:
        states.append({name: value.clone() for name, value in trained.network.state_dict().items()})

    train(IMAGES, recipe_of(), watch=watch)
    own = "encoder.autoencoder."
    assert len(states) == 6
    for name in states[0]:
        of_first = [torch.equal(states[2][name], state[name]) for state in states[:2]]
        of_second = [torch.equal(states[2][name], state[name]) for state in states[3:]]
        assert all(of_second if name.startswith(own) else of_first), name  # BatchNorm's statistics included
        assert not any(of_first if name.startswith(own) else of_second), name


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5])
def test_resumed_around_the_boundary(stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of(optimizer="sgd", lr=0.05)
    _, stopped = train_whole_and_stopped(IMAGES, recipe, stop, tmp_path, monkeypatch)
    assert [row["stage"] for row in stopped.history()] == ["autoencoder"] * 3 + ["classify"] * 3


def gradients_in(group: ProcessGroup, stage: str) -> dict[str, Tensor]:
    method, _ = method_of(group)
    losses = method.step(random_views(stage, group.rows(8)), torch.Generator().manual_seed(1))
    average_gradients(method.parameters(), group)
    return {**losses, **{name: p.grad for name, p in method.named_parameters() if p.grad is not None}}


def save_gradients(group: ProcessGroup, folder: Path) -> None:
    found = {stage: gradients_in(group, stage) for stage in ("autoencoder", "classify")}
    torch.save(found, folder / f"{group.rank}.pt")


@pytest.mark.slow
def test_two_processes_are_one_in_both_stages(tmp_path: Path) -> None:
    in_processes(2, save_gradients, tmp_path)
    for rank in range(2):
        for stage, found in torch.load(tmp_path / f"{rank}.pt").items():
            wanted = gradients_in(SINGLE_PROCESS, stage)
            assert found.keys() == wanted.keys()
            for name, value in wanted.items():
                torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-10, msg=name)


def test_saved_loaded_and_used_without_the_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit(tiny_images(12), recipe_of(epochs=3))
    assert model.decision.detector.name == "mls"
    save(model, tmp_path / "model.safetensors")
    monkeypatch.delitem(METHODS, "grrosr")
    again = load(tmp_path / "model.safetensors")
    images = tiny_images(4, seed=5)
    before, after = model.predict(images), again.predict(images)
    assert before.names() == after.names()
    assert torch.equal(before.score, after.score)
    assert not any("rotation" in name for name in again.network.state_dict())
    heat = again.heat_maps(images)
    assert heat.shape == (12, 16, 16)
    assert heat.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 11])  # 11 is no multiple of what the autoencoder halves
def test_it_can_be_written_as_onnx(size: int, tmp_path: Path) -> None:
    """``export_model`` itself compares onnxruntime's answers with torch's."""
    model = fit(tiny_images(12), recipe_of(image_size=size))
    assert (export_model(model, tmp_path / "out") / "model.onnx").is_file()


@pytest.mark.slow
def test_the_commands(tmp_path: Path) -> None:
    make_photos(tmp_path / "photos")
    run, photos = str(tmp_path / "run"), str(tmp_path / "photos")
    small = ("--image-size", "16", "--encoder", "conv7_16", "--epochs", "2", "--batch-size", "8")
    own = ("--method", "grrosr", "--autoencoder-widths", "8,4")
    assert main(["train", photos, *own, *small, "--out", run]) == 0
    assert main(["predict", run, str(tmp_path / "photos" / "disc" / "0.png")]) == 0
    explain = ["explain", run, str(tmp_path / "photos" / "disc"), "--out", str(tmp_path / "why.html")]
    assert main(explain) == 0


def test_the_recipes_are_there() -> None:
    cpu, paper = load_recipe("cpu/grrosr-cifar10"), load_recipe("paper/grrosr-cifar10")
    assert (cpu.method, cpu.model.projection, cpu.views.start_size) == ("grrosr", "none", None)
    assert (paper.method, paper.objective.rotation_weight, paper.model.encoder) == ("grrosr", 1.0, "resnet18")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"reconstruction": "squard"}, "did you mean 'squared'"),
        ({"turned": "imge"}, "did you mean 'image'"),
        ({"autoencoder_widths": ()}, "autoencoder_widths must be positive"),
        ({"autoencoder_share": 1.0}, "autoencoder_share must lie between"),
        ({"autoencoder_lr": 0.0}, "autoencoder_lr must be positive"),
        ({"rotation_weight": -1.0}, "rotation_weight must not be negative"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        GRROSRSettings(**fields)
