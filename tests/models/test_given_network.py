"""Networks of other people, by file or by module: the same features and logits as they give themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmix.errors import UserError
from gradmix.models import ENCODERS, LinearHead, read_weights
from gradmix.models.given_network import (
    build_user_module,
    load_module_weights,
    network_from_module,
    network_from_weights,
)


def resnet18_by_other_names(classes: int = 4, last: str = "fc") -> dict[str, Tensor]:
    """As OpenOOD (``fc``) and the usual CIFAR scripts (``linear``) name a ResNet18 for small images."""
    torch.manual_seed(0)
    weights = ENCODERS["resnet18"](3, "small").state_dict()
    renamed = {name.replace("downsample", "shortcut"): value for name, value in weights.items()}
    return renamed | {f"{last}.weight": torch.randn(classes, 512), f"{last}.bias": torch.randn(classes)}


@pytest.mark.parametrize(
    ("last", "prefix", "wrap"),
    [
        ("fc", "", ""),
        ("linear", "module.", "net"),
        ("fc", "backbone.", "state_dict"),
        ("fc", "net.", "model"),
    ],
)
def test_openood_and_cifar_names_load(last: str, prefix: str, wrap: str, tmp_path: Path) -> None:
    theirs = resnet18_by_other_names(last=last)
    assert "layer2.0.shortcut.0.weight" in theirs
    saved: object = {prefix + name: value for name, value in theirs.items()}
    torch.save({wrap: saved, "epoch": 3} if wrap else saved, tmp_path / "w.pth")
    given = network_from_weights(str(tmp_path / "w.pth"), "resnet18", 4)
    assert (given.spec.stem, given.spec.channels, given.spec.image_size) == ("small", 3, 32)
    own = given.network.encoder.state_dict()
    assert torch.equal(own["layer2.0.downsample.0.weight"], theirs["layer2.0.shortcut.0.weight"])
    head = given.network.classifier
    assert isinstance(head, LinearHead)
    assert torch.equal(head.weight, theirs[f"{last}.weight"])
    assert torch.equal(head.bias, theirs[f"{last}.bias"])
    assert not given.network.training
    assert not given.network.unit_features


def test_a_file_that_does_not_fit_is_refused_by_its_first_key(tmp_path: Path) -> None:
    weights = resnet18_by_other_names()
    file = str(tmp_path / "w.pth")

    def refuse(changed: dict[str, Tensor], message: str, encoder: str = "resnet18", classes: int = 4) -> None:
        torch.save(changed, file)
        with pytest.raises(UserError, match=message):
            network_from_weights(file, encoder, classes)

    refuse(weights, r"^weights: .*w.pth does not fit this encoder: it lacks 'conv2.weight'", "vgg32")
    refuse(weights | {"more": torch.ones(1)}, "it has an unexpected 'more'")
    refuse(weights | {"bn1.bias": torch.ones(3)}, r"'bn1.bias' in .* is \(3,\), the encoder wants \(64,\)")
    refuse(weights, "has a classifier of 4 classes, and there are 6 known ones", classes=6)
    refuse(weights | {"fc.weight": torch.ones(4, 9)}, r"'fc.weight' in .* is \(4, 9\)")
    refuse({}, "holds no plain dictionary of tensors")
    refuse(weights, "no encoder 'vgg23'; did you mean 'vgg32'", "vgg23")
    with pytest.raises(UserError, match=r"weights: no file nowhere\.pth"):
        network_from_weights("nowhere.pth", "resnet18", 4)


def test_two_networks_in_one_file_are_not_mixed(tmp_path: Path) -> None:
    both = {"module.a": torch.zeros(1), "a": torch.ones(1)}
    torch.save(both, tmp_path / "w.pth")
    assert read_weights(str(tmp_path / "w.pth")) == both


class Small(nn.Module):
    """Features (N, 4) by a convolution, then a classifier of three classes, and something after it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Conv2d(3, 4, 3, stride=2)
        self.aside = nn.Linear(4, 3)  # of as many outputs, and not the last
        self.last = nn.Linear(4, 3)

    def features(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x)).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor | dict[str, Tensor]:
        z = self.features(x)
        self.aside(z)
        return F.log_softmax(self.last(z), dim=1)


class InADict(Small):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"out": super().forward(x)}  # type: ignore[dict-item]


@pytest.mark.parametrize("kind", [Small, InADict])
def test_the_last_linear_layer_divides_a_module(kind: type[Small]) -> None:
    module, images = kind().eval(), torch.rand(5, 3, 16, 16)
    given = network_from_module(module, 3, image_size=16)
    answer = given.network.answer(images)
    torch.testing.assert_close(answer.features, module.features(images))
    torch.testing.assert_close(answer.logits, module.last(module.features(images)))
    assert given.note == "its features go into 'last'"
    assert given.spec.head == {"kind": "linear", "classes": 3, "bias": True}
    assert list(given.network.encoder.layer_names) == ["body"]  # type: ignore[arg-type]


def test_without_a_linear_layer_the_output_counts() -> None:
    convolution = nn.Sequential(nn.Conv2d(3, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = torch.rand(2, 3, 8, 8)
    as_logits = network_from_module(convolution, 3, image_size=8)
    answer = as_logits.network.answer(images)
    torch.testing.assert_close(answer.logits, convolution(images))
    torch.testing.assert_close(answer.features, convolution(images))
    assert "counts as logits and as features" in as_logits.note
    as_features = network_from_module(convolution, 5, image_size=8)
    assert as_features.network.answer(images).logits is None


def test_modules_that_cannot_be_used_are_named() -> None:
    with pytest.raises(UserError, match="Sequential cannot take images of 3 x 8 x 8"):
        network_from_module(nn.Sequential(nn.Linear(7, 3)), 3, image_size=8)
    with pytest.raises(UserError, match="not one vector or feature map per image"):
        network_from_module(nn.Flatten(0), 3, image_size=8)


BUILD = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    body = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*body, nn.Linear(4, 3))

def number():
    return 7

def fails():
    raise ValueError("no such thing\\nreally")
"""


def test_a_module_from_the_users_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(BUILD)
    module = build_user_module(str(file))
    assert network_from_module(module, 3, 16).note == "its features go into '4'"
    weights = {f"module.{name}": value + 1 for name, value in module.state_dict().items()}
    torch.save(weights, tmp_path / "w.pth")
    filled = build_user_module(f"{file}:build", str(tmp_path / "w.pth"))
    assert torch.equal(filled.state_dict()["4.bias"], module.state_dict()["4.bias"] + 1)


def test_the_users_file_may_import_those_beside_it(tmp_path: Path) -> None:
    (tmp_path / "parts_beside_mine.py").write_text(
        "from torch import nn\ndef last(): return nn.Linear(4, 3)\n"
    )
    (tmp_path / "mine.py").write_text(
        "def build():\n    from parts_beside_mine import last\n    return last()\n"
    )
    before = list(sys.path)
    assert isinstance(build_user_module(f"{tmp_path / 'mine.py'}:build"), nn.Linear)
    assert sys.path == before


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("mine.py:bild", r"mine.py has no function bild\(\) \(it has: build, number, fails\)"),
        ("mine.py:number", r"number\(\) in .*mine.py returned int, not a torch.nn.Module"),
        ("mine.py:fails", r"fails\(\) in .*mine.py failed: ValueError: no such thing$"),
        ("wrong.py:build", r"wrong.py, line 2: "),
        ("none.py:build", "no file .*none.py to take a network from"),
        ("empty.py", r"empty.py has no function build\(\); name it"),
    ],
)
def test_mistakes_in_the_users_file_are_one_line(word: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BUILD)
    (tmp_path / "wrong.py").write_text("x = 1\ndef build(:\n")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(UserError, match=message):
        build_user_module(str(tmp_path / word))


def test_weights_that_do_not_fit_the_users_module(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(2, 3))
    file = str(tmp_path / "w.pth")
    for weights, message in (
        ({"0.weight": torch.ones(3, 2)}, "does not fit the backbone: it lacks '0.bias'"),
        ({**module.state_dict(), "x": torch.ones(1)}, "has an unexpected 'x'"),
        (
            {**module.state_dict(), "0.bias": torch.ones(4)},
            r"'0.bias' in .* is \(4,\), the backbone wants \(3,\)",
        ),
    ):
        torch.save(weights, file)
        with pytest.raises(UserError, match=message):
            load_module_weights(module, file)
