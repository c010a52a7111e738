"""The files of an image tower: what is read of them, and what is refused, in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gradmix.errors import UserError
from gradmix.hub_file import HubAddress
from gradmix.models import HubTower, ModelSettings, Plan
from gradmix.models.encoders import own_normalization
from gradmix.models.tower_files import check_fields, parse_tower, read_preparation, read_tower
from gradmix.recipe import make_recipe
from gradmix.recipe.with_backbone import backbone_fields
from gradmix.training.fit_normalizer import fit_normalizer
from gradmix.training.session import describe_network
from tests.models.tiny_towers import SIDE, save_tower
from tests.training.tiny import tiny_images


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_tower("dinov2", tmp_path / "dino")
    return tmp_path / "dino"


def make_tower(folder: Path, image_size: int = SIDE, channels: int = 3) -> HubTower:
    return HubTower(Plan(None, channels, image_size), f"hf:{folder}")  # type: ignore[arg-type]


def edit_config(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def edit_weights(folder: Path, **weights: torch.Tensor | None) -> None:
    found = {n.replace("__", "."): value for n, value in weights.items()}
    tensors = load_file(folder / "model.safetensors") | {n: v for n, v in found.items() if v is not None}
    save_file({n: v for n, v in tensors.items() if found.get(n, v) is not None}, folder / "model.safetensors")


def test_what_an_encoder_word_means() -> None:
    address = HubAddress("facebook/dinov2-small", "v1")
    for word in ("hf:facebook/dinov2-small@v1", "hf://facebook/dinov2-small@v1"):
        assert parse_tower(word) == address
    assert parse_tower("hf:./here/dino") == Path("here/dino")
    assert parse_tower("hf:/there/dino") == Path("/there/dino")
    for word in ("hf:", "hf:dinov2", "hf:a/b/c"):
        with pytest.raises(UserError, match="is no repository of the Hub"):
            ModelSettings(encoder=word)
    with pytest.raises(UserError, match="brings its own weights"):
        ModelSettings(encoder="hf:a/b", init="w.pth")


def test_preparation_of_the_images(folder: Path) -> None:
    found = read_tower(f"hf:{folder}").preparation
    assert (found.image_size, found.mean, found.std) == (SIDE, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    # As SigLIP's files are, without cropping; DINOv3's; a file that says nothing; no scaling at all.
    siglip = {"size": {"height": 384, "width": 384}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    assert read_preparation(siglip, "siglip_vision_model").image_size == 384
    assert read_preparation({"size": 224}, "dinov3_vit").mean == (0.485, 0.456, 0.406)
    assert read_preparation({}, "clip_vision_model", {"image_size": 336}).image_size == 336
    assert read_preparation({}, "clip_vision_model").std == (0.26862954, 0.26130258, 0.27577711)
    assert read_preparation({"do_normalize": False}, "dinov2").std == (1.0, 1.0, 1.0)
    uncropped = {"crop_size": 224, "do_center_crop": False, "size": {"shortest_edge": 256}}
    assert read_preparation(uncropped, "dinov2").image_size == 256
    with pytest.raises(UserError, match="image_std must be positive"):
        read_preparation({"image_std": [0.2, 0.0, 0.2]}, "dinov2")


def test_normalize_auto_is_what_the_weights_were_trained_with(folder: Path) -> None:
    images = tiny_images(2)
    values = {"method": "frozen", "encoder": f"hf:{folder}", "normalize": "auto", "image_size": SIDE}
    found = fit_normalizer(images, make_recipe(values))
    assert (found.mean, found.std) == ((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    assert fit_normalizer(images, make_recipe(values | {"normalize": "half"})).mean == (0.5, 0.5, 0.5)
    lite = fit_normalizer(images, make_recipe(values | {"encoder": "efficientnet_lite0"}))
    assert lite.std == (128 / 255,) * 3
    assert own_normalization(ModelSettings(encoder="resnet50")) == "imagenet"


def test_without_a_recipe_images_have_the_size_of_the_tower(folder: Path) -> None:
    word = f"hf:{folder}"
    assert backbone_fields(word, {}) == {"encoder": word, "image_size": SIDE}
    assert backbone_fields(str(folder), {})["encoder"] == word  # a plain folder will do
    assert backbone_fields(word, {"image_size": 70})["image_size"] == 70
    assert backbone_fields(word, {}, chosen_recipe=True) == {"encoder": word}
    (folder / "preprocessor_config.json").write_text('{"size": 40}')
    assert backbone_fields(word, {})["image_size"] == 35  # whole patches
    with pytest.raises(UserError, match="both name the network"):
        backbone_fields(word, {"encoder": "resnet18"})


def test_sizes_that_do_not_fit(folder: Path) -> None:
    with pytest.raises(UserError, match=r"image_size must be a multiple of 7, .*: 28, say, not 32"):
        make_tower(folder, 32)
    with pytest.raises(UserError, match="sees color images"):
        make_tower(folder, channels=1)
    with pytest.raises(UserError, match="sees images of 28 pixels"):
        make_tower(folder)(torch.zeros(1, 3, 35, 35))
    recipe = make_recipe({"method": "gradmix", "encoder": f"hf:{folder}"})
    with pytest.raises(UserError, match=r"method gradmix does not train hf:.*: use recipe frozen"):
        describe_network(recipe, 3)


def test_only_listed_kinds_and_fields(folder: Path) -> None:
    edit_config(folder, attn_implementation="someone/kernel", auto_map={"AutoModel": "evil.Model"})
    edit_config(folder, _attn_implementation="someone/kernel", quantization_config={"quant_method": "x"})
    tower = make_tower(folder)
    assert tower.tower.config._attn_implementation == "sdpa"
    assert {"auto_map", "quantization_config"}.isdisjoint(tower.config)
    with pytest.raises(UserError, match="has no field 'attn_implementation'"):
        check_fields("dinov2", tower.config | {"attn_implementation": "someone/kernel"})
    with pytest.raises(UserError, match="field 'num_hidden_layers' of the image tower cannot be 1000000"):
        check_fields("dinov2", tower.config | {"num_hidden_layers": 1_000_000})
    with pytest.raises(UserError, match="not a plain value"):
        check_fields("dinov2", tower.config | {"hidden_act": ["gelu"]})
    with pytest.raises(UserError, match="type 'vit' is not one of dinov2"):
        check_fields("vit", {})
    edit_config(folder, model_type="llama")
    with pytest.raises(UserError, match="is a model of type 'llama'; those that can be used are dinov2, "):
        make_tower(folder)


def test_damaged_files(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config.json in"):
        make_tower(tmp_path)
    edit_config(folder, hidden_size="wide")
    with pytest.raises(UserError, match="its configuration is not a whole one"):
        make_tower(folder)
    edit_config(folder, hidden_size=30)
    with pytest.raises(UserError, match=r"its weights do not fit its configuration|not a whole one"):
        make_tower(folder)
    edit_config(folder, hidden_size=32, hidden_act="never_heard_of")
    with pytest.raises(UserError, match="its weights do not fit its configuration"):
        make_tower(folder)
    edit_config(folder, hidden_act="gelu", num_hidden_layers=1)
    with pytest.raises(UserError, match=r"the file has a foreign 'encoder.layer.1."):
        make_tower(folder)
    edit_config(folder, num_hidden_layers=2)
    edit_weights(folder, layernorm__bias=torch.zeros(31))
    with pytest.raises(UserError, match="its weights do not fit its configuration"):
        make_tower(folder)
    edit_weights(folder, layernorm__bias=None)
    with pytest.raises(UserError, match=r"the file lacks 'layernorm.bias'"):
        make_tower(folder)
    # What a file may have besides: the classifier on top.
    edit_weights(folder, layernorm__bias=torch.zeros(32), classifier__weight=torch.zeros(5, 64))
    make_tower(folder)
    (folder / "model.safetensors").write_bytes(b"PK")
    with pytest.raises(UserError, match="truncated or not a file of weights"):
        make_tower(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"no model.safetensors in the folder"):
        make_tower(folder)
    (folder / "config.json").write_text("[1]")
    with pytest.raises(UserError, match=r"config.json cannot be read: it holds no fields"):
        make_tower(folder)


def test_without_the_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"need the extra 'transformers': pip install"):
        make_tower(folder)


def test_half_precision_becomes_float32(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({n: v.half() for n, v in tensors.items()}, folder / "model.safetensors")
    assert {value.dtype for value in make_tower(folder).parameters()} == {torch.float32}
