"""NegPrompt: the case worked out by hand, the slow reference, two stages, resuming at their boundary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gradmix.detection import Outputs, make_detector
from gradmix.errors import UserError
from gradmix.methods import NegPrompt, Progress, Views
from gradmix.methods.negprompt import NegPromptSettings, image_loss, spread_loss
from gradmix.models.clip import TextHead
from gradmix.recognition import fit
from gradmix.training import Interrupted, RunFolder, train
from gradmix.training.session import build_method
from tests.methods.test_locoop import tiny_views
from tests.models.tiny_clip import clip_fields
from tests.reference.clip import cross_entropy, negprompt_loss
from tests.training.interrupted import assert_equal_bits, saved, stop_after
from tests.training.tiny import CLASSES, tiny_images, tiny_recipe


def test_the_case_worked_out_by_hand() -> None:
    """(positive, negative) = (.30, .10), (.20, .25): softmax (.2721, .2462) and (.2228, .2589)."""
    outputs = Outputs(
        torch.zeros(1, 2),
        torch.tensor([0]),
        None,
        {"cosines": torch.tensor([[0.30, 0.20]]), "negative_cosines": torch.tensor([[0.10, 0.25]])},
    )
    found = make_detector("negprompt").score(outputs)
    assert float(found.score) == pytest.approx(0.2721, abs=5e-5)
    assert found.label.tolist() == [0]


def tiny_method(**fields: Any) -> NegPrompt:
    method = build_method(tiny_recipe(**clip_fields("negprompt", **fields)), CLASSES)
    assert isinstance(method, NegPrompt)
    method.text_tower.double()  # no submodule, so that it is not moved along
    return method.double()


def in_stage(name: str) -> Views:
    views = tiny_views()
    return Views(views.v1, views.v2, views.labels, Progress(stage=name))


def unit_images(method: NegPrompt, views: Views) -> Tensor:
    return F.normalize(method.network(views.v1), dim=1).detach()


@pytest.mark.parametrize("separation", ["paper", "released"])
@pytest.mark.parametrize("negatives", [1, 2])
def test_the_second_stage_is_the_slow_one(separation: str, negatives: int) -> None:
    method, views = tiny_method(separation=separation, negatives=negatives), in_stage("negative")
    with torch.no_grad():
        positive = method.positive(method.text_tower)
        negative = method.negative(method.text_tower).view(3, negatives, -1)
    losses = method.step(views, torch.Generator())
    labels = views.labels.tolist()
    wanted = negprompt_loss(unit_images(method, views), positive, negative, labels, separation, 0.1, 0.05)
    assert float(losses["loss"]) == pytest.approx(wanted, rel=1e-6)


def test_the_first_stage_is_cross_entropy_over_the_positives() -> None:
    method, views = tiny_method(), in_stage("positive")
    with torch.no_grad():
        logits = 100 * unit_images(method, views) @ method.positive(method.text_tower).T
    losses = method.step(views, torch.Generator())
    assert losses.keys() == {"loss"}
    wanted = cross_entropy(logits.tolist(), views.labels.tolist())
    assert float(losses["loss"]) == pytest.approx(wanted, rel=1e-6)
    assert method.positive.contexts.grad is not None
    assert method.negative.contexts.grad is None


def test_the_two_readings_pull_own_negatives_in_opposite_directions() -> None:
    """An image of class 0: what the gradient does to its cosine with the negatives of class 0."""
    for separation, pushed_away in (("paper", True), ("released", False)):
        positive, negative = torch.zeros(1, 2), torch.zeros(1, 2, requires_grad=True)
        image_loss(positive, negative, torch.tensor([0]), separation).backward()
        gradient = negative.grad
        assert gradient is not None
        assert bool(gradient[0, 0] > 0) == pushed_away
        assert bool(gradient[0, 1] > 0)  # those of the other class are pushed away by both


def test_negatives_that_cancel_out_are_spread_most() -> None:
    same = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    opposite = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
    assert float(spread_loss(same)) == 0.0
    assert float(spread_loss(opposite)) == -1.0


def test_contexts_begin_at_the_words_and_negatives_differ() -> None:
    method = tiny_method()
    words = method.text_tower.encode([f"a photo of a {name}" for name in CLASSES])
    torch.testing.assert_close(method.positive(method.text_tower), words)
    one, other = method.negative.contexts
    assert one.shape == (4, method.text_tower.width)
    assert not torch.equal(one, other)
    assert float((one - method.positive.contexts[0]).detach().std()) == pytest.approx(0.02, rel=0.2)
    drawn = tiny_method(context_words="", context_tokens=5, negatives=3)
    assert drawn.positive.contexts.shape == (1, 5, method.text_tower.width)
    assert drawn.negative.contexts.shape == (3, 5, method.text_tower.width)


def recipe_of(**fields: Any) -> Any:
    return tiny_recipe(**clip_fields("negprompt", **{"optimizer": "sgd", "lr": 0.1} | fields))


def test_each_stage_trains_its_own_and_both_are_in_the_model(tmp_path: Path) -> None:
    images, recipe = tiny_images(8), recipe_of()
    run = RunFolder.create(tmp_path / "run", recipe, {})
    start = build_method(recipe, CLASSES).state_dict()
    seen: list[tuple[Tensor, Tensor]] = []

    def note(now: Any, total: int) -> None:
        head = now.network.classifier
        assert isinstance(head, TextHead)
        seen.append((head.text.clone(), head.negative_text.clone()))

    train(images, recipe, run, watch=note)
    assert len(seen) == 6
    first, last = seen[2], seen[5]  # the ends of the stages
    assert torch.equal(first[1], start["network.classifier.negative_text"])
    assert not torch.equal(first[0], start["network.classifier.text"])
    assert torch.equal(first[0], last[0])
    assert not torch.equal(first[1], last[1])
    assert {row["stage"] for row in run.history()} == {"positive", "negative"}


@pytest.mark.parametrize("stops", [(9,), (8, 10), (9, 9 + 1)])
def test_resumed_at_and_around_the_boundary_of_the_stages(
    stops: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six steps in two stages; the whole run's six come first, so step 9 is the last of stage 1."""
    images, recipe = tiny_images(8), recipe_of()
    whole = RunFolder.create(tmp_path / "whole", recipe, {})
    stopped = RunFolder.create(tmp_path / "stopped", recipe, {})
    stop_after(monkeypatch, *stops)
    one = train(images, recipe, whole)
    for _ in stops:
        with pytest.raises(Interrupted):
            train(images, recipe, stopped)
    other = train(images, recipe, stopped)
    assert_equal_bits(one.network.state_dict(), other.network.state_dict())
    assert_equal_bits(saved(whole), saved(stopped))


def test_a_model_decides_by_all_prompts() -> None:
    images = tiny_images(8)
    recognizer = fit(images, recipe_of(negatives=3))
    assert recognizer.decision.detector.name == "negprompt"
    assert recognizer.outputs(images).extra["negative_cosines"].shape == (24, 9)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"separation": "papr"}, "did you mean 'paper'"),
        ({"negatives": 0}, "negatives must be at least 1"),
        ({"apart_weight": -1.0}, "apart_weight must not be negative"),
        ({"negative_share": 1.0}, "negative_share must lie between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        NegPromptSettings(**fields)


def test_words_that_are_none_are_refused() -> None:
    with pytest.raises(UserError, match="context_words ' ' are no words"):
        tiny_method(context_words=" ")
