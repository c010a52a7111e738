"""Image towers against transformers' own forward pass, with its own files."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from gradmix.attribution import Capture, LayerCAM
from gradmix.models import HubTower, Plan
from tests.models.tiny_towers import MAKE, PATCH, SIDE, own_features, save_tower


def make_tower(folder: Path, image_size: int = SIDE) -> HubTower:
    def no_encoder(channels: int) -> None:
        raise AssertionError("a tower stands in place of the encoder")

    return HubTower(Plan(no_encoder, 3, image_size), f"hf:{folder}").eval()  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [SIDE, SIDE + 2 * PATCH])
@pytest.mark.parametrize("kind", MAKE)
def test_features_are_those_of_transformers(kind: str, size: int, tmp_path: Path) -> None:
    theirs = save_tower(kind, tmp_path / kind)
    ours = make_tower(tmp_path / kind, size)
    x = torch.randn(70, 3, size, size, generator=torch.Generator().manual_seed(1))  # more than one part
    wanted = own_features(theirs, x)
    assert wanted.std() > 0.01
    with torch.no_grad():
        found = ours(x)
    assert found.shape == (70, ours.dim)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    # With a gradient in one part, and the same; the patches are a grid, without class and register tokens.
    with Capture(ours, ["patches"]) as capture:
        again = ours(x[:3])
        (maps,) = capture.activations()
    torch.testing.assert_close(again, wanted[:3], rtol=1e-5, atol=1e-5)
    assert maps.shape == (3, 2 * 32, size // PATCH, size // PATCH)


@pytest.mark.parametrize("kind", MAKE)
def test_heat_maps_by_transformers_own_gradient(kind: str, tmp_path: Path) -> None:
    """LayerCAM is the sum of the positive A ∂L/∂A of what goes into the last block, found by a hook there."""
    theirs = save_tower(kind, tmp_path / kind)
    ours = make_tower(tmp_path / kind)
    x = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    model = getattr(theirs, "vision_model", theirs)
    blocks = [part for part in model.modules() if isinstance(part, torch.nn.ModuleList)][-1]
    seen: list[torch.Tensor] = []

    def keep(block: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        args[0].retain_grad()
        seen.append(args[0])

    blocks[-1].register_forward_pre_hook(keep)
    with torch.enable_grad():
        own_features.__wrapped__(theirs, x)[:, 0].sum().backward()  # type: ignore[attr-defined]
    assert seen[0].grad is not None
    side = SIDE // PATCH
    product = (seen[0] * seen[0].grad)[:, -(side**2) :].relu().sum(2).detach()
    wanted = torch.nn.functional.interpolate(
        product.view(2, 1, side, side), (SIDE, SIDE), mode="bilinear", align_corners=False
    )[:, 0]
    found = LayerCAM(ours, "patches")(x, lambda z: z[:, 0])
    assert found.amax((1, 2)).min() > 0
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-7)  # sums in another order


@pytest.mark.parametrize("kind", ["dinov2", "dinov3", "clip", "siglip"])
def test_the_patch_at_a_place_of_the_grid_is_that_of_the_image(kind: str, tmp_path: Path) -> None:
    """Where attention is switched off, a change of one patch of the image changes one place of the grid."""
    save_tower(kind, tmp_path / kind)
    tower = make_tower(tmp_path / kind)
    for name, value in tower.tower.named_parameters():
        if "attn" in name or "attention." in name:
            value.data.zero_()
    x = torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    changed = x.clone()
    changed[:, :, 2 * PATCH : 3 * PATCH, PATCH : 2 * PATCH] += 1  # row 2, column 1
    maps = []
    for images in (x, changed):
        with Capture(tower, ["patches"]) as capture, torch.no_grad():
            tower(images)
            maps += capture.activations()
    differs = (maps[0] - maps[1]).abs().amax((0, 1)) > 1e-6
    assert differs.nonzero().tolist() == [[2, 1]]


@pytest.mark.parametrize("kind", MAKE)
def test_it_is_rebuilt_from_plain_values(kind: str, tmp_path: Path) -> None:
    """From its description and weights alone, built without memory, as a model file is opened."""
    save_tower(kind, tmp_path / kind)
    tower = make_tower(tmp_path / kind)
    described = tower.resolve({"kind": "hub_tower", "source": "hf:elsewhere/unused"})
    assert described["source"] == f"hf:./{kind}"  # without the folder on this machine
    described.pop("kind")
    weights = {name: value.clone() for name, value in tower.state_dict().items()}
    with safe_open(tmp_path / kind / "model.safetensors", framework="pt") as file:
        published = {name for name in file.keys() if not name.startswith(("text_", "logit_"))}  # noqa: SIM118
    mine = {name.removeprefix("tower.") for name in weights}
    assert mine == published or mine == {name.removeprefix("vision_model.") for name in published}
    (tmp_path / kind / "config.json").unlink()
    with torch.device("meta"):
        plan = Plan(None, 3, SIDE)  # type: ignore[arg-type]
        again = HubTower(plan, **described)
    again.load_state_dict(weights, assign=True)
    again.finish_loading()
    assert not [name for name, value in again.named_buffers() if value.is_meta]
    x = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(again.eval()(x), tower(x))
        assert torch.equal(copy.deepcopy(again)(x), tower(x))
