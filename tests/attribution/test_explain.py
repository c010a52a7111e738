"""LayerCAM and GradCAM on a whole model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gradmix.attribution import GradCAM, LayerCAM
from gradmix.errors import UserError
from tests.reference import cam as reference

LOOPS: dict[type[LayerCAM] | type[GradCAM], Callable[[Tensor, Tensor], Tensor]] = {
    LayerCAM: reference.layercam,
    GradCAM: reference.gradcam,
}
SIZE = (9, 6)


def small_cnn() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.Conv2d(3, 4, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * 5 * 3, 3),
        )
    return model.double().eval()


def images(n: int = 2) -> Tensor:
    return torch.randn(n, 2, *SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def highest(logits: Tensor) -> Tensor:
    return logits.max(1).values


def slow_map(cam: type[LayerCAM] | type[GradCAM], model: nn.Sequential, layer: int) -> Tensor:
    """Cut the model behind ``layer``, differentiate the rest from a leaf, then loop over pixels."""
    activation = model[: layer + 1](images()).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(highest(model[layer + 1 :](activation)).sum(), activation)
    return LOOPS[cam](activation.detach(), gradient)


@pytest.mark.parametrize("cam", [LayerCAM, GradCAM])
@pytest.mark.parametrize("layers", [[0], [2], [4], [4, 0], [0, 2, 4]])
def test_equals_the_loop_on_the_model_cut_in_two(
    cam: type[LayerCAM] | type[GradCAM], layers: list[int]
) -> None:
    model = small_cnn()
    found = cam(model, [str(layer) for layer in layers])(images(), highest)
    maps = [slow_map(cam, model, layer) for layer in layers]
    torch.testing.assert_close(found, reference.aggregate(maps, SIZE, "none"), rtol=1e-10, atol=1e-12)
    assert found.shape == (2, *SIZE)
    assert found.max() > 0


@pytest.mark.parametrize("normalize", ["per_layer", "per_image"])
def test_normalisation_is_passed_on(normalize: str) -> None:
    model = small_cnn()
    found = LayerCAM(model, ["0", "4"], normalize)(images(), highest)
    maps = [slow_map(LayerCAM, model, layer) for layer in (0, 4)]
    torch.testing.assert_close(found, reference.aggregate(maps, SIZE, normalize), rtol=1e-10, atol=1e-12)


def test_parameter_gradients_are_left_alone() -> None:
    model = small_cnn()
    first, *rest = model.parameters()
    first.grad = torch.full_like(first, 7)
    LayerCAM(model, "4")(images(), highest)
    assert torch.equal(first.grad, torch.full_like(first, 7))
    assert all(parameter.grad is None for parameter in rest)


def test_works_under_no_grad_and_the_map_carries_no_gradient() -> None:
    model = small_cnn()
    expected = LayerCAM(model, "2")(images(), highest)
    with torch.no_grad():
        found = LayerCAM(model, "2")(images(), highest)
        assert not torch.is_grad_enabled()
    assert torch.equal(found, expected)
    assert not expected.requires_grad


def test_works_on_a_frozen_model() -> None:
    model = small_cnn()
    expected = LayerCAM(model, "2")(images(), highest)
    assert torch.equal(LayerCAM(model.requires_grad_(False), "2")(images(), highest), expected)


def test_eval_mode_and_batch_statistics_are_untouched() -> None:
    model = small_cnn()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    LayerCAM(model, "2")(images(), highest)
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_an_images_map_does_not_depend_on_its_batch() -> None:
    model = small_cnn()
    together = LayerCAM(model, "4")(images(3), highest)
    alone = torch.cat([LayerCAM(model, "4")(image[None], highest) for image in images(3)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-14)


def test_the_given_images_stay_as_they_were() -> None:
    given = images()
    before = given.clone()
    LayerCAM(small_cnn(), "0")(given, highest)
    assert torch.equal(given, before)
    assert given.grad is None
    assert not given.requires_grad


def test_hooks_are_gone_when_the_target_fails() -> None:
    model = small_cnn()
    with pytest.raises(IndexError):
        LayerCAM(model, "2")(images(), lambda logits: logits[:, 99])
    assert all(not module._forward_hooks for module in model.modules())


def test_a_layer_beside_the_way_to_the_target() -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            self.unused(x)
            out: Tensor = self.used(x).mean((2, 3))
            return out

    with pytest.raises(UserError, match="does not depend on layer 'unused'"):
        LayerCAM(TwoHeads().double(), ["used", "unused"])(images(), highest)


def test_misspelt_options_name_the_nearest() -> None:
    model = small_cnn()
    with pytest.raises(UserError, match="no layer '22'; did you mean '2'"):
        LayerCAM(model, "22")(images(), highest)
    with pytest.raises(UserError, match="did you mean 'per_image'"):
        LayerCAM(model, "2", "per_imag")(images(), highest)
