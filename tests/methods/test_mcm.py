"""MCM and CLIPN: text features from names, nothing trained, a model that answers without the text tower."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from gradmix.data import ImageSet
from gradmix.detection import Outputs, make_detector
from gradmix.errors import UserError
from gradmix.methods.clip_prompts import readable_names
from gradmix.methods.mcm import MCMSettings
from gradmix.models.clip import TextHead, TextTower, denying_tower, load_tokenizer, tokens
from gradmix.recognition import Recognizer, fit, load, save
from gradmix.training import RunFolder, load_recipe, train
from gradmix.views import Normalizer
from tests.models.tiny_clip import clip_fields, tiny_clip
from tests.training.tiny import CLASSES, SIDE, tiny_images, tiny_recipe

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)


SAVED: list[tuple[str, dict[str, Any]]] = [
    ("mcm", {}),
    ("mcm", {"local_scores": True, "detector": "gl-mcm"}),
    ("clipn", {}),
    ("locoop", {"epochs": 1}),
    ("negprompt", {"epochs": 1}),
]


def outputs(**extra: list[float]) -> Outputs:
    found = {name: torch.tensor([values]) for name, values in extra.items()}
    logits = found.pop("logits", None)
    return Outputs(torch.zeros(1, 2), torch.tensor([0]), logits, found)


def test_the_cases_worked_out_by_hand() -> None:
    """With the logit scale MCM would be MSP, .99995."""
    plain = make_detector("mcm").score(outputs(cosines=[0.3, 0.2]))
    assert float(plain.score) == pytest.approx(0.5250, abs=5e-5)
    denied = outputs(logits=[5.0, 3.0], no_logits=[4.0, 4.0])
    assert float(make_detector("clipn-ctw").score(denied).score) == pytest.approx(0.7311, abs=5e-5)
    assert float(make_detector("clipn-atd").score(denied).score) == pytest.approx(0.6760, abs=5e-5)


def fit_tiny(method: str, **fields: Any) -> Recognizer:
    return fit(tiny_images(6), tiny_recipe(**clip_fields(method, **fields)))


def head_of(recognizer: Recognizer) -> TextHead:
    head = recognizer.network.classifier
    assert isinstance(head, TextHead)
    return head


def test_the_head_holds_the_texts_of_the_names() -> None:
    tower = TextTower(tiny_clip(), "quick_gelu")
    recognizer = fit_tiny("mcm")
    wanted = tower.encode([f"a photo of a {name}" for name in CLASSES])
    torch.testing.assert_close(head_of(recognizer).text, wanted, atol=1e-6, rtol=0)
    several = fit_tiny("mcm", prompts="a photo of a {}, the drawing of {}")
    mean = (wanted + tower.encode([f"the drawing of {name}" for name in CLASSES])) / 2
    torch.testing.assert_close(head_of(several).text, F.normalize(mean, dim=1), atol=1e-6, rtol=0)
    assert float(head_of(several).scale) == pytest.approx(100.0)


def test_the_label_and_the_score_are_those_of_the_cosines() -> None:
    images, recognizer = tiny_images(6), fit_tiny("mcm")
    assert recognizer.normalizer.mean == CLIP_MEAN
    network = recognizer.network
    with torch.no_grad():
        z = F.normalize(network(recognizer.normalizer(images.images)), dim=1)
    cosines = z @ head_of(recognizer).text.T
    found = recognizer.predict(images)
    assert recognizer.decision.detector.name == "mcm"
    assert found.nearest.tolist() == cosines.argmax(1).tolist()
    wanted = torch.softmax(cosines.double(), dim=1).amax(1)
    torch.testing.assert_close(found.score, wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("method", "fields"),
    SAVED,
)
def test_a_saved_model_needs_no_text_tower(
    method: str, fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recognizer = fit_tiny(method, **fields)
    save(recognizer, tmp_path / "model.safetensors")

    def refuse(*arguments: Any) -> None:
        raise AssertionError("answering needs no text")

    monkeypatch.setattr(tokens, "_find_vocabulary", refuse)
    monkeypatch.setattr(TextTower, "__init__", refuse)
    load_tokenizer.cache_clear()
    again = load(tmp_path / "model.safetensors")
    assert not any("token" in name for name in again.network.state_dict())
    new = tiny_images(4, ("disc", "cross"), seed=5)
    one, other = recognizer.predict(new), again.predict(new)
    assert torch.equal(one.score, other.score)
    assert one.names() == other.names()
    assert again.spec.encoder == "clip"
    assert again.spec.body == recognizer.spec.body


def test_the_second_tower_of_clipn_denies() -> None:
    weights = tiny_clip(denies=True)
    recognizer = fit_tiny("clipn", clip_activation="gelu")
    tower = TextTower(denying_tower(weights), "gelu")
    offset = weights["prompt_no"].mean(0)
    wanted = torch.cat([tower.encode([f"a photo of a {name}"], offset) for name in CLASSES])
    torch.testing.assert_close(head_of(recognizer).no_text, wanted, atol=1e-6, rtol=0)
    assert not torch.allclose(head_of(recognizer).no_text, head_of(recognizer).text, atol=0.1)
    assert recognizer.decision.detector.name == "clipn-atd"


def rename(images: ImageSet, *names: str) -> ImageSet:
    return replace(images, class_names=names)


@pytest.mark.parametrize("names", [("0", "1", "2"), ("n01443537", "n01629819", "n01641577")])
def test_classes_without_names_are_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    images, recipe = rename(tiny_images(4), *names), tiny_recipe(**clip_fields("mcm"))
    run = RunFolder.create(tmp_path / "run", recipe, {})
    with pytest.raises(UserError, match=f"reads the names of the classes, and '{names[0]}' tells it nothing"):
        fit(images, recipe, run)
    assert not run.model_file.exists()


def test_names_are_read_as_words() -> None:
    assert readable_names(["ice_cream", " red  fox", "747"]) == ["ice cream", "red fox", "747"]
    with pytest.raises(UserError, match="there are none"):
        readable_names([])


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"init": ""}, "start from CLIP's weights: --init FILE"),
        ({"prompts": "a photo"}, r"'a photo' must have one \{\}"),
        ({"prompts": ()}, r"must have one \{\}"),
        ({"clip_activation": "glu"}, "did you mean 'gelu'"),
        ({"detector": "gl-mcm"}, "needs local_mcm"),
        ({"channels": 1}, "set channels to 3"),
        ({"method": "clipn"}, r"no second text tower \('transformer_no"),
    ],
)
def test_what_cannot_be(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as error:
        fit(tiny_images(4), tiny_recipe(**clip_fields("mcm") | fields))
    assert "\n" not in str(error.value)


def test_the_loop_refuses_to_train_nothing() -> None:
    for method in ("mcm", "clipn"):
        with pytest.raises(UserError, match=f"method {method} trains nothing"):
            train(tiny_images(4), tiny_recipe(**clip_fields(method)))


def test_recipes() -> None:
    assert load_recipe("clip/mcm").objective == MCMSettings()
    assert load_recipe("clip/clipn").objective == MCMSettings(clip_activation="gelu")
    for name in ("mcm", "clipn", "locoop", "negprompt"):
        recipe = load_recipe(f"clip/{name}")
        assert (recipe.method, recipe.views.image_size, recipe.views.normalize) == (name, 224, "clip")
    gray = torch.zeros(2, 1, SIDE, SIDE, dtype=torch.uint8)
    with pytest.raises(UserError, match="normalize clip is for color images"):
        Normalizer.fit(gray, "clip")
