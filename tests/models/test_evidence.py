"""Features beside the probabilities of the encoder's own classes: formula, weights, model file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.export import export_model
from gradmix.models import ENCODERS, Evidence
from gradmix.models.evidence import combine_evidence
from gradmix.recognition import Recognizer, fit, load, save
from gradmix.training.session import build_network
from tests.training.tiny import tiny_images, tiny_recipe

OWN_CLASSES = 7
FIELDS = {"method": "frozen", "holdout": 0.33, "false_reject": 0.1, "score_normalize": "none"}
FIELDS |= {"evidence": True, "whiten": True, "train_head": True}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Weights of the tiny recipe's encoder with the classifier that they were published with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        encoder = ENCODERS["resnet10_16"](3, "half")
        weights = encoder.state_dict()
        weights |= {"fc.weight": torch.randn(OWN_CLASSES, encoder.dim), "fc.bias": torch.randn(OWN_CLASSES)}
    torch.save(weights, tmp_path / "w.pth")
    return tmp_path / "w.pth"


def recognizer(init: Path, each: int = 20, **fields: object) -> Recognizer:
    return fit(tiny_images(each), tiny_recipe(**FIELDS | {"init": str(init)} | fields))


def slow_evidence(features: list[float], logits: list[float]) -> list[float]:
    total = sum(max(x, 0.0) for x in features)
    largest = max(logits)
    weights = [math.exp(value - largest) for value in logits]
    shares = [math.sqrt(max(x, 0.0) / total + 1e-6) for x in features]
    return shares + [0.5 * math.sqrt(w / sum(weights)) for w in weights]


def test_it_is_the_formula_written_out() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    logits = 5 * torch.randn(5, 4, generator=generator, dtype=torch.float64)
    wanted = [slow_evidence(x, y) for x, y in zip(features.tolist(), logits.tolist(), strict=True)]
    torch.testing.assert_close(combine_evidence(features, logits), torch.tensor(wanted, dtype=torch.float64))


def test_the_length_of_the_features_and_a_constant_on_the_logits_do_not_matter() -> None:
    features, logits = torch.rand(3, 6).double(), torch.randn(3, 4).double()
    torch.testing.assert_close(combine_evidence(7 * features, logits + 3), combine_evidence(features, logits))


@pytest.mark.parametrize("features", [torch.zeros(1, 3), torch.tensor([[0.0, 1.0, 0.0]])])
def test_values_and_slopes_are_finite_where_shares_vanish(features: Tensor) -> None:
    features, logits = features.requires_grad_(), torch.tensor([[0.0, 500.0]], requires_grad=True)
    h = combine_evidence(features, logits)
    torch.autograd.backward(h.sum())
    assert features.grad is not None
    assert logits.grad is not None
    assert all(bool(values.isfinite().all()) for values in (h, features.grad, logits.grad))


def test_encoder_and_classifier_have_the_published_weights(published: Path) -> None:
    network = build_network(tiny_recipe(**FIELDS, init=str(published)), 3).eval()
    body, weights = network.encoder, torch.load(published, weights_only=True)
    assert isinstance(body, Evidence)
    plain = ENCODERS["resnet10_16"](3, "half")
    plain.load_state_dict({n: v for n, v in weights.items() if not n.startswith("fc.")})
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    features = plain.double().eval()(x)
    logits = features @ weights["fc.weight"].double().T + weights["fc.bias"].double()
    torch.testing.assert_close(body.double()(x), combine_evidence(features, logits))
    assert body.dim == plain.dim + OWN_CLASSES == network.feature_dim


def test_a_model_file_opens_without_the_weights(published: Path, tmp_path: Path) -> None:
    made, images = recognizer(published), tiny_images(4, seed=9)
    save(made, tmp_path / "model.safetensors")
    published.unlink()
    opened = load(tmp_path / "model.safetensors")
    assert opened.spec.body == {"kind": "evidence", "classes": OWN_CLASSES}
    assert torch.equal(opened.predict(images).score, made.predict(images).score)


def test_it_is_taught_explained_and_exported(published: Path, tmp_path: Path) -> None:
    made, images = recognizer(published), tiny_images(4, seed=9)
    taught = made.enroll("taught", images.select(torch.arange(3)))
    assert taught.class_names[-1] == "taught"
    heat = made.explain(images.select(torch.arange(2)))
    assert len(heat) == 2
    pytest.importorskip("onnx")
    export_model(made, tmp_path / "exported")
    assert list((tmp_path / "exported").glob("*.onnx"))


def test_logits_stay_a_linear_map_of_what_the_encoder_says(published: Path) -> None:
    network = recognizer(published).network.double()
    head, said = network.linear_head(), network.answer(torch.rand(4, 3, 16, 16, dtype=torch.float64))
    assert head is not None
    assert said.penultimate is not None
    assert said.logits is not None
    logits = said.penultimate @ head[0].double().T + head[1].double()
    torch.testing.assert_close(logits, said.logits, rtol=0, atol=1e-4)


def test_weights_without_a_classifier_are_refused(published: Path) -> None:
    weights = torch.load(published, weights_only=True)
    torch.save({n: v for n, v in weights.items() if not n.startswith("fc.")}, published)
    with pytest.raises(UserError, match="evidence needs published weights with their classifier"):
        build_network(tiny_recipe(**FIELDS, init=str(published)), 3)
    with pytest.raises(UserError, match="init: pretrained"):
        build_network(tiny_recipe(**FIELDS), 3)


def test_a_classifier_of_another_width_is_refused(published: Path) -> None:
    weights = torch.load(published, weights_only=True)
    torch.save(weights | {"fc.weight": torch.zeros(7, 3)}, published)
    with pytest.raises(UserError, match=r"'fc' is \(7, 3\)"):
        build_network(tiny_recipe(**FIELDS, init=str(published)), 3)


def test_it_does_not_go_with_a_head_from_the_weights(published: Path) -> None:
    fields = FIELDS | {"train_head": False, "init_head": True}
    with pytest.raises(UserError, match="evidence does not go with init_head"):
        build_network(tiny_recipe(**fields, init=str(published)), OWN_CLASSES)
