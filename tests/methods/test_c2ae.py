"""C2AE: the decoder's loss against a slow one, what stands still in which stage, runs and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradmix.data import ImageSet
from gradmix.detection.pareto import pareto_threshold
from gradmix.errors import UserError
from gradmix.methods import C2AE, Progress, Views
from gradmix.methods.c2ae import C2AESettings, draw_other_class
from gradmix.models import ConditionalDecoder
from gradmix.training import RunFolder, load_recipe, session, train
from gradmix.training.session import build_method
from gradmix.training.stages import Freezer, plan_stages
from tests.methods.saved_model import save_and_load
from tests.reference.c2ae import decoder_loss
from tests.training.interrupted import train_whole_and_stopped
from tests.training.tiny import tiny_images, tiny_recipe

IMAGES = tiny_images(8)  # 24 images: 3 steps per epoch, 3 in each stage
SMALL: dict[str, Any] = {"method": "c2ae", "decoder_width": 16, "decoder_lr": 0.01, "log_every": 1}


def in_stage(name: str, **fields: Any) -> C2AE:
    recipe = tiny_recipe(**{**SMALL, **fields})
    method = build_method(recipe, IMAGES.class_names)
    assert isinstance(method, C2AE)
    planned = plan_stages(method, recipe, 6)
    Freezer(method, planned).enter(next(one.stage for one in planned if one.stage.name == name))
    return method


def views(stage: str, n: int = 9) -> Views:
    rows = torch.arange(0, 24, 24 // n)[:n]
    x = (IMAGES.images[rows].double() / 255).contiguous(memory_format=torch.channels_last)
    return Views(x, x, IMAGES.labels[rows], Progress(stage=stage))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def test_the_decoders_loss_is_the_slow_one() -> None:
    method = in_stage("decode", match_weight=0.7).double()
    method.network.eval()  # batches of one, below, have no statistics
    decoder, v = method.network.probe, views("decode")
    assert isinstance(decoder, ConditionalDecoder)
    found = method.losses(v, generator())
    other = draw_other_class(v.labels, generator())
    assert bool((v.labels[other] != v.labels).all())

    def draw(i: int, k: int) -> Tensor:
        assert isinstance(decoder, ConditionalDecoder)
        with torch.no_grad():
            return decoder.draw(decoder.encode(method.network, v.v1[i : i + 1]), torch.tensor([k]))[0]

    wanted = decoder_loss(v.v1, v.labels, other, draw, 0.7)
    assert float(found["loss"].detach()) == pytest.approx(wanted, rel=1e-9)


def test_a_batch_of_one_class_has_no_wrong_condition() -> None:
    method = in_stage("decode").double()
    v = views("decode")
    alone = Views(v.v1, v.v2, torch.zeros_like(v.labels), v.progress)
    found = method.losses(alone, generator())
    assert float(found["nonmatch"].detach()) == 0
    assert float(found["loss"].detach()) == pytest.approx(0.9 * float(found["match"].detach()))


def test_partners_are_of_another_class_and_all_of_them_come_up() -> None:
    labels = torch.tensor([0, 0, 1, 2, 1])
    drawn = torch.stack([draw_other_class(labels, torch.Generator().manual_seed(i)) for i in range(200)])
    assert bool((labels[drawn] != labels).all())
    assert [sorted(set(column.tolist())) for column in drawn.T] == [
        *([[2, 3, 4]] * 2),
        [0, 1, 3],
        [0, 1, 2, 4],
        [0, 1, 3],
    ]


@pytest.mark.parametrize("stage", ["classify", "decode"])
def test_gradients_stay_in_the_stage(stage: str) -> None:
    method = in_stage(stage).double()
    method.step(views(stage), generator())
    for name, parameter in method.named_parameters():
        wanted = name.startswith("network.probe.") == (stage == "decode")
        assert (parameter.grad is not None) == wanted, name


def test_the_classifier_stands_still_in_the_second_stage(tmp_path: Path) -> None:
    states: list[dict[str, Tensor]] = []

    def watch(trained: session.Trained, total: int) -> None:
        states.append({name: value.clone() for name, value in trained.network.state_dict().items()})

    run = RunFolder.create(tmp_path / "run", tiny_recipe(**SMALL), {})
    train(IMAGES, tiny_recipe(**SMALL), run, watch=watch)
    for name, value in states[2].items():  # BatchNorm's statistics included
        moves = name.startswith("probe.")
        assert torch.equal(states[5][name], value) != moves, name
        assert torch.equal(states[0][name], value) == moves, name
    assert [row["stage"] for row in run.history()] == ["classify"] * 3 + ["decode"] * 3
    assert "match" in run.history()[-1]


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5])
def test_stopped_and_resumed(stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tiny_recipe(**SMALL)
    train_whole_and_stopped(IMAGES, recipe, stop, tmp_path, monkeypatch)


@pytest.mark.parametrize("projection", ["none", "linear"])
def test_a_model_in_its_file(projection: str, tmp_path: Path) -> None:
    recipe = tiny_recipe(**SMALL, projection=projection, holdout=0.2, max_steps=4)
    again = save_and_load(IMAGES, recipe, tmp_path)
    assert again.decision.detector.name == "reconstruction"
    outputs = again.outputs(IMAGES)
    assert outputs.extra["errors"].shape == (24, 3)
    scores = again.predict(IMAGES).score
    torch.testing.assert_close(scores, -outputs.extra["errors"].double().amin(1))


def test_the_threshold_of_the_paper_lies_between_two_kinds_of_errors(tmp_path: Path) -> None:
    fields = {**SMALL, "max_steps": 40, "epochs": 20, "decoder_share": 0.8, "holdout": 0.0}
    again = save_and_load(IMAGES, tiny_recipe(**fields, error_threshold="pareto"), tmp_path)
    errors, rows = again.outputs(IMAGES).extra["errors"].double(), torch.arange(24)
    match = errors[rows, IMAGES.labels]
    nonmatch = torch.cat([errors[rows, (IMAGES.labels + by) % 3] for by in (1, 2)])
    assert again.threshold.value == pytest.approx(-pareto_threshold(match, nonmatch), rel=1e-6)
    assert (again.threshold.n, again.threshold.promised, again.threshold.guaranteed) == (24, False, True)
    risk = [
        float((match >= t).double().mean() + (nonmatch <= t).double().mean())
        for t in (-again.threshold.value, float(match.min()), float(nonmatch.max()))
    ]
    assert risk[0] < min(risk[1:])
    other = save_and_load(IMAGES, tiny_recipe(**fields), tmp_path)
    assert other.threshold.value != again.threshold.value
    by_logits = tiny_recipe(**fields, error_threshold="pareto", detector="mls")
    assert save_and_load(IMAGES, by_logits, tmp_path).threshold.value > 0  # a logit: no error


def test_fewer_images_than_a_tail_are_refused_before_training() -> None:
    few = IMAGES.select(torch.arange(3, 22))
    with pytest.raises(UserError, match="at least 20 images, and there are 19"):
        train(few, tiny_recipe(**SMALL, error_threshold="pareto"))


def test_after_training_an_image_is_drawn_best_as_of_its_class() -> None:
    recipe = tiny_recipe(**{**SMALL, "max_steps": 40, "epochs": 20, "decoder_share": 0.8})
    trained = train(IMAGES, recipe)
    with torch.no_grad():
        errors = trained.network.answer(trained.normalizer(IMAGES.images)).extra["errors"]
    assert float((errors.argmin(1) == IMAGES.labels).double().mean()) > 0.7


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"match_weight": 1.1}, "match_weight must lie in"),
        ({"decoder_share": 1.0}, "decoder_share must lie between"),
        ({"decoder_lr": 0.0}, "decoder_lr must be positive"),
        ({"decoder_width": 4}, "decoder_width must be at least 8"),
        ({"label_smoothing": 1.0}, "label_smoothing must lie in"),
        ({"error_threshold": "paretto"}, "did you mean 'pareto'"),
        ({"unknown_chance": 1.0}, "unknown_chance must lie between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        C2AESettings(**fields)


def test_one_class_is_refused() -> None:
    images = ImageSet(IMAGES.images[:8], torch.zeros(8, dtype=torch.int64), ("bar",))
    with pytest.raises(UserError, match="at least two classes"):
        train(images, tiny_recipe(**SMALL))


def test_the_recipes_are_there() -> None:
    recipe = load_recipe("cpu/c2ae-cifar10")
    assert (recipe.method, recipe.objective.decoder_width, recipe.model.projection) == ("c2ae", 64, "none")
    paper = load_recipe("paper/c2ae-cifar10")
    assert (paper.objective.match_weight, paper.training.batch_size, paper.training.lr) == (0.9, 64, 3e-4)
