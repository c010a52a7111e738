"""MEDAF: cases worked out by hand, the slow reference, who trains whom, runs, the model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmix.cli import main
from gradmix.errors import UserError
from gradmix.export import export_model
from gradmix.methods import MEDAF, METHODS, Views
from gradmix.methods.medaf import MEDAFSettings, compare_maps
from gradmix.models import ENCODERS, Experts, LinearHead, Network
from gradmix.recognition import fit, load, save
from gradmix.training import Interrupted, RunFolder, load_recipe, train
from gradmix.training.session import build_method
from tests.reference.medaf import diversity, medaf_losses
from tests.training.interrupted import assert_equal_bits, saved, stop_after
from tests.training.tiny import make_photos, tiny_images, tiny_recipe

CLASSES = ("a", "b", "c")


def recipe_of(**fields: Any) -> Any:
    """With the small stem: maps of one position would have no diversity."""
    small = {"encoder": "conv7_16", "stem": "small", "gate": "shared"}
    return tiny_recipe(**{"method": "medaf", **small, **fields})


def parts_of(**fields: Any) -> tuple[MEDAF, Experts, LinearHead]:
    method = build_method(recipe_of(**fields), CLASSES).double()
    assert isinstance(method, MEDAF)
    body, head = method.network.encoder, method.network.classifier
    assert isinstance(body, Experts)
    assert isinstance(head, LinearHead)
    return method, body, head


def random_views(n: int = 5) -> Views:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(n, 3, 16, 16, generator=generator, dtype=torch.float64)
    return Views(x, x, torch.arange(n) % 3)


MAPS = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]], dtype=torch.float64)


@pytest.mark.parametrize(("how", "wanted"), [("paper", 1.0), ("released", 0.5)])
def test_the_diversity_worked_out_by_hand(how: str, wanted: float) -> None:
    assert float(compare_maps(MAPS, how)) == pytest.approx(wanted)
    assert diversity(MAPS[0].tolist(), how) == pytest.approx(wanted)


def test_only_the_cosine_between_maps_has_a_gradient() -> None:
    maps = torch.rand(4, 3, 9, dtype=torch.float64, requires_grad=True)
    assert not compare_maps(maps, "released").requires_grad
    compare_maps(maps, "paper").backward()
    assert maps.grad is not None
    assert float(maps.grad.abs().max()) > 0.001


def test_maps_of_zeros_have_a_finite_gradient() -> None:
    maps = torch.zeros(2, 3, 4, requires_grad=True)
    compare_maps(maps).backward()
    assert maps.grad is not None
    assert maps.grad.isfinite().all()


@pytest.mark.parametrize("how", ["paper", "released"])
@pytest.mark.parametrize("shared", ["stem", "conv2_2"])
def test_it_is_the_slow_one(how: str, shared: str) -> None:
    method, body, head = parts_of(diversity=how, shared=shared, gate_temperature=0.1, diversity_weight=0.3)
    for p in body.experts.parameters():  # so that they differ
        nn.init.normal_(p, 0.0, 0.3)
    views = random_views()
    maps, weights = body.look(views.v1)
    wanted = medaf_losses(maps.detach(), weights, head.weight, views.labels, how)
    found = {name: float(value) for name, value in method.step(views, torch.Generator()).items()}
    total = 0.7 * wanted["experts"] + wanted["gate"] + 0.3 * wanted["diversity"]
    assert found == pytest.approx({"loss": total, **wanted}, rel=1e-9)
    assert 0.01 < wanted["diversity"] < 2.99


@pytest.mark.parametrize("gate", ["own", "shared"])
def test_the_gates_cross_entropy_trains_the_gate_alone(gate: str) -> None:
    method, _, _ = parts_of(gate=gate, expert_weight=0.0, diversity_weight=0.0, shared="conv2_2")
    method.step(random_views(), torch.Generator())
    moved = {n for n, p in method.named_parameters() if p.grad is not None and float(p.grad.abs().max()) > 0}
    assert moved
    assert all(name.startswith("network.encoder.gate") for name in moved)


def test_one_expert_has_seven_tenths_of_the_gradient_of_cross_entropy() -> None:
    method, body, head = parts_of(experts=1, shared="conv2_2")
    torch.manual_seed(0)
    plain = Network(ENCODERS["conv7_16"](3, "small"), 64, 64, "none", LinearHead(64, 3, bias=False)).double()
    both = {**body.shared.state_dict(), **body.experts[0].state_dict()}
    plain.encoder.load_state_dict(both)
    assert plain.classifier is not None
    plain.classifier.load_state_dict(head.state_dict())
    views = random_views()
    logits = plain.logits(plain(views.v1))
    assert logits is not None
    (0.7 * F.cross_entropy(logits, views.labels)).backward()
    losses = method.step(views, torch.Generator())
    assert float(losses["diversity"]) == 0
    ours = {**dict(body.shared.named_parameters()), **dict(body.experts[0].named_parameters())}
    pairs = [(ours[name], p) for name, p in plain.encoder.named_parameters()]
    for own, its in [*pairs, (head.weight, plain.classifier.get_parameter("weight"))]:
        torch.testing.assert_close(own.grad, its.grad, rtol=1e-9, atol=1e-12)


def test_as_released_the_blocks_leak_but_not_after_their_sums() -> None:
    """A block written out; slope 0.01, in the stem, the experts and the gate alike."""
    method, body, _ = parts_of(encoder="resnet10_16", activation="released", gate="own")
    method.eval()
    assert not [m for m in body.modules() if isinstance(m, nn.ReLU)]
    slopes = {m.negative_slope for m in body.modules() if isinstance(m, nn.LeakyReLU)}
    assert slopes == {0.01}
    block = body.experts[0].get_submodule("layer1.0")
    x = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def leaky(values: Tensor) -> Tensor:
        return torch.where(values > 0, values, 0.01 * values)

    conv1, bn1, conv2, bn2 = (block.get_submodule(name) for name in ("conv1", "bn1", "conv2", "bn2"))
    wanted = (bn2(conv2(leaky(bn1(conv1(x))))) + x).clamp(min=0)
    torch.testing.assert_close(block(x), wanted)
    image = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert bool((body.shared.maps(image) < 0).any())  # the stem
    plain = parts_of(encoder="resnet10_16", gate="own")[1]
    assert not [m for m in plain.modules() if isinstance(m, nn.LeakyReLU)]
    assert "leak" not in plain.extra_repr()
    assert "leak=0.01" in body.extra_repr()


@pytest.mark.parametrize("gate", ["own", "shared"])
def test_stopped_and_resumed_equals_undisturbed(
    gate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, recipe = tiny_images(8), recipe_of(optimizer="sgd", lr=0.05, gate=gate)
    whole = RunFolder.create(tmp_path / "whole", recipe, {})
    stopped = RunFolder.create(tmp_path / "stopped", recipe, {})
    stop_after(monkeypatch, 7, 11)  # the whole run's six steps come first
    train(images, recipe, whole)
    for _ in range(2):
        with pytest.raises(Interrupted):
            train(images, recipe, stopped)
    train(images, recipe, stopped)
    assert_equal_bits(saved(whole), saved(stopped))
    assert {"experts", "gate", "diversity"} < whole.history()[0].keys()


def test_the_experts_do_not_stay_copies() -> None:
    trained = train(tiny_images(8), recipe_of(optimizer="sgd", lr=0.05))
    body = trained.network.encoder
    assert isinstance(body, Experts)
    one, other = (list(body.experts[i].parameters()) for i in range(2))
    assert all(not torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("activation", ["paper", "released"])
def test_saved_loaded_and_used_without_the_method(
    activation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fit(tiny_images(12), recipe_of(epochs=3, shared="conv2_2", activation=activation))
    assert model.decision.detector.name == "msp"
    save(model, tmp_path / "model.safetensors")
    monkeypatch.delitem(METHODS, "medaf")
    again = load(tmp_path / "model.safetensors")
    images = tiny_images(4, seed=5)
    before, after = model.predict(images), again.predict(images)
    assert before.names() == after.names()
    assert torch.equal(before.score, after.score)
    heat: Tensor = again.heat_maps(images)
    assert heat.shape == (12, 16, 16)
    assert heat.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("detector", ["", "knn"])
def test_it_can_be_written_as_onnx(detector: str, tmp_path: Path) -> None:
    """``export_model`` itself compares onnxruntime's answers with torch's."""
    model = fit(tiny_images(12), recipe_of(gate="own"))
    assert (export_model(model, tmp_path / "out", detector) / "model.onnx").is_file()


@pytest.mark.slow
def test_the_commands(tmp_path: Path) -> None:
    make_photos(tmp_path / "photos")
    run, photos = str(tmp_path / "run"), str(tmp_path / "photos")
    small = ("--image-size", "16", "--encoder", "conv7_16", "--epochs", "2", "--batch-size", "8")
    assert main(["train", photos, "--method", "medaf", "--shared", "conv2_2", *small, "--out", run]) == 0
    assert main(["predict", run, str(tmp_path / "photos" / "disc" / "0.png")]) == 0
    explain = ["explain", run, str(tmp_path / "photos" / "disc"), "--out", str(tmp_path / "why.html")]
    assert main(explain) == 0


def test_the_recipes_are_there() -> None:
    cpu, paper = load_recipe("cpu/medaf-cifar10"), load_recipe("paper/medaf-cifar10")
    assert (cpu.method, cpu.objective.experts, cpu.objective.shared) == ("medaf", 2, "conv2_2")
    assert (paper.objective.experts, paper.objective.shared, paper.objective.gate) == (3, "stem", "own")
    assert (MEDAF.detector, MEDAF.score_temperature) == ("msp", 100.0)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"diversity": "papr"}, "did you mean 'paper'"),
        ({"gate": "owm"}, "did you mean 'own'"),
        ({"activation": "papr"}, "did you mean 'paper'"),
        ({"experts": 0}, "experts must be at least 1"),
        ({"gate_temperature": 0.0}, "gate_temperature must be positive"),
        ({"diversity_weight": -1.0}, "diversity_weight must not be negative"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        MEDAFSettings(**fields)
