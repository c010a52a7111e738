"""LayerCAM and GradCAM against torchcam.

torchcam gives one map a layer at the layer's own resolution; ``normalized=False`` keeps it raw. Its
``fuse_cams`` takes the largest of tanh-scaled maps, which is another aggregation than the sum of the
GradMix paper, so the maps are compared layer by layer and their sum is formed here.
"""

from __future__ import annotations

import pytest
import torch
import torchcam.methods
from torch import Tensor, nn
from torch.nn.functional import interpolate

from gradmix.attribution import GradCAM, LayerCAM, gradcam_map, layercam_map
from gradmix.models import ModelSettings, Network, build_encoder

pytestmark = pytest.mark.oracle

PAIRS = {
    "layercam": (LayerCAM, torchcam.methods.LayerCAM),
    "gradcam": (GradCAM, torchcam.methods.GradCAM),
}
LAYERS = ["0", "1", "3", "4", "6"]
CLASSES = 5


def small_cnn() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 16, 3),
            nn.Flatten(),
            nn.Linear(16 * 3 * 2, CLASSES),
        )
    return model.eval()


def images(n: int, size: tuple[int, int]) -> Tensor:
    return torch.randn(n, 3, *size, generator=torch.Generator().manual_seed(1))


def theirs(name: str, model: nn.Module, layers: list[str], x: Tensor, classes: list[int]) -> list[Tensor]:
    with PAIRS[name][1](model, layers) as extractor:
        return extractor(class_idx=classes, scores=model(x), normalized=False)


def enlarged(maps: Tensor, size: tuple[int, int]) -> Tensor:
    return interpolate(maps[:, None], size, mode="bilinear", align_corners=False)[:, 0]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("layer", LAYERS)
def test_one_layer(name: str, layer: str) -> None:
    model, x, classes = small_cnn(), images(4, (20, 16)), [0, 3, 1, 4]
    found = PAIRS[name][0](model, layer)(x, lambda out: out.gather(1, torch.tensor(classes)[:, None]))
    (expected,) = theirs(name, model, [layer], x, classes)
    torch.testing.assert_close(found, enlarged(expected, (20, 16)), rtol=1e-5, atol=1e-5 * float(found.max()))
    assert found.max() > 0


@pytest.mark.parametrize("name", PAIRS)
def test_several_layers_are_the_sum_of_theirs(name: str) -> None:
    model, x, classes = small_cnn(), images(4, (20, 16)), [2, 2, 0, 1]
    found = PAIRS[name][0](model, LAYERS)(x, lambda out: out.gather(1, torch.tensor(classes)[:, None]))
    expected = sum(enlarged(maps, (20, 16)) for maps in theirs(name, model, LAYERS, x, classes))
    assert isinstance(expected, Tensor)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * float(found.max()))


@pytest.mark.parametrize("name", PAIRS)
def test_on_a_resnet_by_the_papers_layer_names(name: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = build_encoder(ModelSettings("resnet10_16"), 32, 3)
        model = Network(encoder, 128, CLASSES).eval()
    x, classes = images(2, (32, 32)), [1, 4]
    found = PAIRS[name][0](model, ["conv3_2", "conv5_2"])(
        x, lambda out: out.gather(1, torch.tensor(classes)[:, None])
    )
    maps = theirs(name, model, ["encoder.layer2.0", "encoder.layer4.0"], x, classes)
    expected = sum(enlarged(m, (32, 32)) for m in maps)
    assert isinstance(expected, Tensor)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * float(found.max()))


@pytest.mark.parametrize("name", PAIRS)
def test_the_pure_functions_on_the_tensors_torchcam_hooks(name: str) -> None:
    model, x = small_cnn(), images(3, (20, 16))
    with PAIRS[name][1](model, LAYERS) as extractor:
        expected = extractor(class_idx=2, scores=model(x), normalized=False)
        hooked = list(zip(extractor.hook_a, extractor.hook_g, strict=True))
    map_of = layercam_map if name == "layercam" else gradcam_map
    for (activation, gradient), wanted in zip(hooked, expected, strict=True):
        torch.testing.assert_close(map_of(activation, gradient), wanted, rtol=1e-5, atol=1e-6)
