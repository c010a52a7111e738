"""LoCoOp: the case worked out by hand, the slow reference, what is trained, a run stopped and resumed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gradmix.detection import Outputs, make_detector
from gradmix.errors import UserError
from gradmix.methods import LoCoOp, Views
from gradmix.methods.locoop import LoCoOpSettings, background_entropy, count_top
from gradmix.models.clip import TextHead, VisionTower, load_tokenizer
from gradmix.training import Interrupted, RunFolder, train
from gradmix.training.session import build_method
from tests.models.tiny_clip import clip_fields
from tests.reference import clip as slow
from tests.training.interrupted import assert_equal_bits, saved, stop_after
from tests.training.tiny import CLASSES, SIDE, tiny_images, tiny_recipe


def test_the_case_worked_out_by_hand() -> None:
    """Of patches (2, 0, 0) and (0, 1, 0) with label 0 and k = 1, only the second is background."""
    patches = torch.tensor([[[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], dtype=torch.float64)
    entropy = background_entropy(patches, torch.tensor([0]), top=1)
    assert float(entropy) == pytest.approx(0.9753, abs=5e-5)
    assert 0.25 * float(entropy) == pytest.approx(0.2438, abs=5e-5)

    # k = 3 of 3 contains every label: no background, and no entropy.
    assert float(background_entropy(patches, torch.tensor([0]), top=3)) == 0.0


def test_gl_mcm_by_hand() -> None:
    """softmax(.3, .2) = .5250 for the image; its best patch has .75."""
    outputs = Outputs(
        torch.zeros(1, 2),
        torch.tensor([0]),
        None,
        {"cosines": torch.tensor([[0.3, 0.2]]), "local_mcm": torch.tensor([[0.75]])},
    )
    assert float(make_detector("gl-mcm").score(outputs).score) == pytest.approx(1.2750, abs=5e-5)


@pytest.mark.parametrize("top", [1, 2, 4])
def test_the_background_is_that_of_the_slow_one(top: int) -> None:
    generator = torch.Generator().manual_seed(top)
    patches = 3 * torch.randn(4, 6, 5, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 3, 1, 4])
    found = float(background_entropy(patches, labels, top))
    assert found == pytest.approx(slow.background_entropy(patches.tolist(), labels.tolist(), top), rel=1e-9)
    assert found > 0


def tiny_method(**fields: Any) -> LoCoOp:
    recipe = tiny_recipe(**clip_fields("locoop", **fields))
    method = build_method(recipe, CLASSES)
    assert isinstance(method, LoCoOp)
    return method.double()


def tiny_views(n: int = 6) -> Views:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(n, 3, SIDE, SIDE, generator=generator, dtype=torch.float64)
    return Views(x, x, torch.arange(n) % 3)


def as_double(method: LoCoOp) -> LoCoOp:
    method.text_tower.double()  # no submodule, so that it is not moved along
    return method


def test_a_step_is_the_slow_one() -> None:
    method, views = as_double(tiny_method()), tiny_views()
    losses = method.step(views, torch.Generator())
    tower = method.network.encoder
    assert isinstance(tower, VisionTower)
    text = slow_texts(method)
    features = F.normalize(tower.all_features(views.v1), dim=2)
    logits = (100 * features @ text.T).detach()
    ce = slow.cross_entropy(logits[:, 0].tolist(), views.labels.tolist())
    entropy = slow.background_entropy(logits[:, 1:].tolist(), views.labels.tolist(), top=1)
    assert float(losses["ce"]) == pytest.approx(ce, rel=1e-6)
    assert float(losses["background"]) == pytest.approx(entropy, rel=1e-6)
    assert float(losses["loss"]) == pytest.approx(ce - 0.25 * entropy, rel=1e-6)


def slow_texts(method: LoCoOp) -> Tensor:
    """[start][context][name][.][end] per class, one by one and padded to the full length."""
    tower, tokenizer = method.text_tower, load_tokenizer()
    table = tower.token_embedding.weight
    found = []
    for name in CLASSES:
        after = [*tokenizer.encode(name), *tokenizer.encode("."), tokenizer.end]
        embedded = torch.cat([table[[tokenizer.start]], method.prompts.contexts[0], table[after]])
        end = len(embedded) - 1
        padded = torch.cat([embedded, table[[0] * (77 - len(embedded))]])
        found.append(tower(padded[None], torch.tensor([end])))
    return torch.cat(found).detach()


def test_only_the_context_is_trained_and_its_gradient_is_that_of_the_loss() -> None:
    method, views = as_double(tiny_method(context_tokens=2)), tiny_views()
    method.step(views, torch.Generator())
    trained = {name for name, p in method.named_parameters() if p.requires_grad}
    assert trained == {"prompts.contexts"}
    assert method.prompts.contexts.shape == (1, 2, method.text_tower.width)
    gradient = method.prompts.contexts.grad
    assert gradient is not None
    step, at = 1e-5, (0, 1, 3)
    losses = []
    for sign in (1, -1):
        with torch.no_grad():
            method.prompts.contexts[at] += sign * step
            losses.append(float(method.losses(views, torch.Generator())["loss"]))
            method.prompts.contexts[at] -= sign * step
    assert float(gradient[at]) == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-4)


def test_the_checkpoint_holds_no_text_tower() -> None:
    method = tiny_method()
    names = method.state_dict().keys()
    assert "prompts.contexts" in names
    assert not any("token" in name or "text_projection" in name or "prompts.names" in name for name in names)


def test_the_trained_prompts_are_in_the_head() -> None:
    """Those after the last step, not those before it."""
    images, recipe = tiny_images(6), tiny_recipe(**clip_fields("locoop", lr=0.5, optimizer="sgd", epochs=1))
    seen: list[Tensor] = []
    trained = train(images, recipe, watch=lambda now, total: seen.append(text_of(now.network).clone()))
    assert len(seen) == 2
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(text_of(trained.network), seen[1])
    assert not torch.equal(text_of(build_method(recipe, CLASSES).network), seen[0])


def text_of(network: Any) -> Tensor:
    assert isinstance(network.classifier, TextHead)
    return network.classifier.text


def test_training_lowers_the_loss_of_easy_images(tmp_path: Path) -> None:
    fields = clip_fields("locoop", epochs=10, optimizer="adam", lr=0.02, log_every=6, context_tokens=4)
    run = RunFolder.create(tmp_path / "run", tiny_recipe(**fields), {})
    train(tiny_images(8), tiny_recipe(**fields), run)
    rows = run.history()
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_stopped_and_resumed_equals_undisturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, recipe = tiny_images(8), tiny_recipe(**clip_fields("locoop", optimizer="sgd", lr=0.05))
    whole = RunFolder.create(tmp_path / "whole", recipe, {})
    stopped = RunFolder.create(tmp_path / "stopped", recipe, {})
    stop_after(monkeypatch, 8, 11)  # the whole run's six steps come first
    one = train(images, recipe, whole)
    for _ in range(2):
        with pytest.raises(Interrupted):
            train(images, recipe, stopped)
    other = train(images, recipe, stopped)

    assert_equal_bits(saved(whole), saved(stopped))
    assert torch.equal(text_of(one.network), text_of(other.network))


def test_top_classes_are_never_none_nor_all() -> None:
    assert [count_top(0.2, k) for k in (2, 3, 6, 10, 100)] == [1, 1, 1, 2, 20]
    assert not math.isclose(count_top(0.99, 3), 3)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"context_tokens": 0}, "context_tokens must be at least 1"),
        ({"background_weight": -1.0}, "background_weight must not be negative"),
        ({"background_top": 1.0}, "background_top must lie between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        LoCoOpSettings(**fields)


def test_a_name_that_does_not_fit_beside_the_context_is_refused() -> None:
    with pytest.raises(UserError, match=r"class 'bar' with a context of 74 is longer than the 77 tokens"):
        tiny_method(context_tokens=74)
