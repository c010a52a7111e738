from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from gradmix.errors import UserError
from gradmix.models import ENCODERS, ModelSettings, build_encoder, pretrained, read_weights

NAME = "resnet10_16"


@pytest.fixture
def published() -> dict[str, Tensor]:
    """Weights as they are published: ImageNet stem, colour, with their classifier."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        weights = ENCODERS[NAME](3, "imagenet").state_dict()
    weights["bn1.running_mean"] = torch.arange(16.0)
    return weights | {"fc.weight": torch.rand(10, 128), "fc.bias": torch.rand(10)}


def load(file: Path, channels: int = 3, **more: str) -> dict[str, Tensor]:
    return build_encoder(ModelSettings(NAME, init=str(file), **more), 32, channels).state_dict()


def save(weights: object, file: Path) -> Path:
    if file.suffix == ".safetensors":
        save_file({k: v.contiguous() for k, v in weights.items()}, file)
    else:
        torch.save(weights, file)
    return file


@pytest.mark.parametrize("kind", ["w.pth", "w.pt", "w.safetensors"])
def test_both_formats_are_read_whole_but_for_the_classifier(
    kind: str, published: dict[str, Tensor], tmp_path: Path
) -> None:
    found = load(save(published, tmp_path / kind))
    assert not [name for name in found if name.startswith("fc.")]
    for name, value in found.items():  # the ImageNet stem was chosen by the weights, not by 32 pixels
        assert torch.equal(value, published[name]), name


def test_wrappings_of_training_scripts_are_taken_off(published: dict[str, Tensor], tmp_path: Path) -> None:
    wrapped = {"epoch": 7, "state_dict": {f"module.{name}": value for name, value in published.items()}}
    found = load(save(wrapped, tmp_path / "w.pth"))
    assert torch.equal(found["layer4.0.conv2.weight"], published["layer4.0.conv2.weight"])


def test_files_without_batch_counters_are_accepted(published: dict[str, Tensor], tmp_path: Path) -> None:
    old = {name: value for name, value in published.items() if "num_batches_tracked" not in name}
    assert torch.equal(load(save(old, tmp_path / "w.pth"))["conv1.weight"], published["conv1.weight"])


def test_small_stems_are_recognised(tmp_path: Path) -> None:
    weights = ENCODERS[NAME](3, "small").state_dict()
    assert load(save(weights, tmp_path / "w.pth"))["conv1.weight"].shape[-1] == 3


def test_colour_weights_see_a_grey_image_as_its_colour_copy(
    published: dict[str, Tensor], tmp_path: Path
) -> None:
    file = save(published, tmp_path / "w.pth")
    grey, colour = (
        build_encoder(ModelSettings(NAME, init=str(file)), 32, channels).eval() for channels in (1, 3)
    )
    image = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(grey(image), colour(image.expand(2, 3, 32, 32)), rtol=1e-4, atol=1e-5)


def test_weights_of_another_encoder_are_refused(published: dict[str, Tensor], tmp_path: Path) -> None:
    without = {name: value for name, value in published.items() if name != "layer2.0.bn1.bias"}
    with pytest.raises(UserError, match=r"lacks 'layer2.0.bn1.bias'; choose the encoder"):
        load(save(without, tmp_path / "a.pth"))
    with pytest.raises(UserError, match=r"unexpected 'layer1.1.conv1.weight'"):
        load(save(published | {"layer1.1.conv1.weight": torch.zeros(1)}, tmp_path / "b.pth"))
    with pytest.raises(UserError, match=r"'layer1.0.bn1.bias' in .* is \(3,\), the encoder wants \(16,\)"):
        load(save(published | {"layer1.0.bn1.bias": torch.zeros(3)}, tmp_path / "c.pth"))
    with pytest.raises(UserError, match=r"'conv1.weight' .* try --stem imagenet"):
        load(save(published, tmp_path / "d.pth"), stem="small")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"init: no file .*nowhere.pth"):
        load(tmp_path / "nowhere.pth")


@pytest.mark.parametrize("name", ["bad.pth", "bad.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights at all", b"\x80\x05garbage"])
def test_rubbish_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name} is not a readable weights file"):
        read_weights(str(tmp_path / name))


@pytest.mark.parametrize("content", [[1, 2], {"a": 3}, {"state_dict": {"a": "text"}}])
def test_files_that_hold_no_tensors_are_refused(content: object, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no plain dictionary of tensors"):
        read_weights(str(save(content, tmp_path / "w.pth")))


class Bomb:
    """Runs code when it is unpickled; here it would make a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_nothing_in_a_weights_file_is_executed(writer: str, tmp_path: Path) -> None:
    file, trace = tmp_path / "w.pth", tmp_path / "executed"
    if writer == "torch":
        torch.save({"conv1.weight": Bomb(trace)}, file)
    else:
        file.write_bytes(pickle.dumps(Bomb(trace)))
    with pytest.raises(UserError, match="not a readable weights file"):
        read_weights(str(file))
    assert not trace.exists()


def test_the_hub_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match="need the extra 'hub'"):
        read_weights("hub:someone/something")


def test_weights_come_from_the_hub_by_name(
    published: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the Hub's own client fetches them is tested in hub/test_hub.py."""
    file = save(published, tmp_path / "model.safetensors")
    asked = []
    monkeypatch.setattr(pretrained, "fetch", lambda address: asked.append(str(address)) or file)
    for source in ("hf://timm/resnet10@v1", "hub:timm/resnet10@v1"):
        loaded = read_weights(source)
        assert torch.equal(loaded["bn1.running_mean"], published["bn1.running_mean"])
    assert asked == ["hf://timm/resnet10@v1"] * 2
