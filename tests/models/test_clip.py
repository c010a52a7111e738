"""CLIP's towers: slow reference, sizes from shapes, other image sizes, weights that do not fit, the head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from gradmix.attribution import LayerCAM
from gradmix.errors import UserError
from gradmix.models import Network, NetworkSpec, Plan, build_head, read_weights
from gradmix.models.clip import PatchProbe, TextHead, TextTower, VisionTower, use_openai_names
from gradmix.models.clip import vision as vision_module
from gradmix.models.clip.vision import resize_positions
from tests.models.tiny_clip import DIM, LAYERS, PATCH, WIDTH, tiny_clip
from tests.reference.clip import patch_features
from tests.training.tiny import SIDE

TEXT_PARTS = ("token_embedding.weight", "ln_final.bias", "transformer.resblocks.1.ln_1.bias")


def no_encoder(channels: int) -> Any:
    raise AssertionError("a body in place of the encoder needs none")


def build(weights: dict[str, Tensor] | None, size: int = SIDE, **settings: Any) -> VisionTower:
    return VisionTower(Plan(no_encoder, 3, size, weights), **settings).eval()


@pytest.fixture(scope="module")
def tower() -> VisionTower:
    return build(tiny_clip()).double()


def images(n: int, size: int = SIDE) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def test_image_and_patches_are_those_of_the_slow_one(tower: VisionTower) -> None:
    x = images(1)
    weights = {name: value.double() for name, value in tiny_clip().items()}
    wanted = torch.stack([patch_features(weights, image, LAYERS, PATCH) for image in x])
    assert wanted.shape == (1, 1 + (SIDE // PATCH) ** 2, DIM)
    torch.testing.assert_close(tower(x), wanted[:, 0])
    torch.testing.assert_close(tower.patches(x), wanted[:, 1:])
    torch.testing.assert_close(tower.all_features(x), wanted)


def test_without_a_gradient_images_go_in_parts(tower: VisionTower, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images(5)
    whole = tower.all_features(x)
    monkeypatch.setattr(vision_module, "_IMAGES_AT_ONCE", 2)
    seen: list[int] = []
    handle = tower.conv1.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    with torch.no_grad():
        torch.testing.assert_close(tower.all_features(x), whole)
    handle.remove()
    assert seen == [2, 2, 1]


def test_sizes_come_from_the_shapes_and_go_into_the_description(tower: VisionTower) -> None:
    described = tower.resolve({"kind": "clip", "activation": "quick_gelu"})
    assert described == {
        "kind": "clip",
        "activation": "quick_gelu",
        "width": WIDTH,
        "layers": LAYERS,
        "patch": PATCH,
        "dim": DIM,
    }
    del described["kind"]
    again = build(None, **described)
    assert again.text_weights is None
    again.double().load_state_dict(tower.state_dict())
    x = images(2)
    assert torch.equal(again(x), tower(x))


def test_the_text_half_is_given_once_and_is_no_part_of_the_network() -> None:
    tower = build(tiny_clip())
    assert not any("token" in name for name in tower.state_dict())
    assert "token_embedding.weight" in tower.take_text_weights()
    with pytest.raises(UserError, match="has no text tower"):
        tower.take_text_weights()


def test_the_activation_matters_and_is_in_the_cache_key() -> None:
    quick, exact = build(tiny_clip()), build(tiny_clip(), activation="gelu")
    x = images(2).float()
    assert not torch.allclose(quick(x), exact(x), atol=1e-3)
    assert repr(quick) != repr(exact)


def test_positions_of_another_image_size_are_interpolated() -> None:
    weights = tiny_clip()
    flat = weights["visual.positional_embedding"].clone()
    flat[1:] = flat[1]
    for side in (2, 3, 8):  # equal everywhere: equal in between
        found = resize_positions(flat, side)
        assert found.shape == (side**2 + 1, WIDTH)
        torch.testing.assert_close(found, torch.cat([flat[:1], flat[1:2].expand(side**2, -1)]))
    larger = build(weights, size=2 * SIDE)
    assert larger.positional_embedding.shape == (65, WIDTH)
    assert torch.equal(larger.positional_embedding[0], weights["visual.positional_embedding"][0])
    assert larger(images(2, 2 * SIDE).float()).shape == (2, DIM)
    # A ramp from left to right stays one.
    ramp = torch.zeros(17, 1)
    ramp[1:, 0] = torch.arange(4.0).repeat(4)
    assert (resize_positions(ramp, 8)[1:, 0].view(8, 8).diff(dim=1) > 0).all()


def test_heat_maps_have_a_layer(tower: VisionTower) -> None:
    maps = LayerCAM(tower, list(tower.layer_names))(images(2), lambda z: z[:, 0])
    assert maps.shape == (2, SIDE, SIDE)
    assert maps.amax() > 0


@pytest.mark.slow
def test_exported_it_takes_any_number_of_images(tower: VisionTower) -> None:
    with torch.no_grad():
        program = torch.export.export(tower, (images(2),), dynamic_shapes=({0: torch.export.Dim("n")},))
        torch.testing.assert_close(program.module()(images(70)), tower(images(70)))


def spoil(change: str) -> dict[str, Tensor]:
    weights = tiny_clip()
    if change == "resnet":
        names = ("visual.attnpool.positional_embedding", "visual.conv1.weight")
        return {name: torch.zeros(1) for name in names}
    if change == "no clip":
        return {"conv1.weight": torch.zeros(64, 3, 7, 7)}
    if change == "lacks":
        del weights["visual.transformer.resblocks.1.ln_2.bias"]
    if change == "shape":
        weights["visual.class_embedding"] = torch.zeros(7)
    if change == "unexpected":
        weights["visual.transformer.resblocks.0.ls_1.gamma"] = torch.zeros(WIDTH)
    if change == "no layers":
        return {n: v for n, v in weights.items() if "resblocks" not in n}
    if change == "no projection":
        del weights["visual.proj"]
    return weights


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("resnet", "a CLIP with a ResNet; take one with a vision transformer"),
        ("no clip", r"no weights of CLIP: they lack 'visual\.conv1\.weight'"),
        ("lacks", r"lack 'visual\.transformer\.resblocks\.1\.ln_2\.bias'"),
        ("shape", r"'visual\.class_embedding' is \(7,\), not \(64,\)"),
        ("unexpected", r"'visual\.transformer\.resblocks\.0\.ls_1\.gamma' is no part of CLIP"),
        ("no layers", r"lack 'visual\.transformer\.resblocks\.0"),
        ("no projection", r"lack 'visual\.proj'"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as error:
        build(spoil(change))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", TEXT_PARTS)
def test_a_text_tower_that_lacks_something_is_refused(name: str) -> None:
    weights = tiny_clip()
    del weights[name]
    with pytest.raises(UserError, match=f"lack '{name}'"):
        TextTower(weights, "quick_gelu")


def test_sizes_and_channels_that_cannot_be() -> None:
    with pytest.raises(UserError, match="start from CLIP's weights: --init FILE"):
        build(None)
    with pytest.raises(UserError, match="image_size must be a multiple of 4"):
        build(tiny_clip(), size=18)
    with pytest.raises(UserError, match="set channels to 3"):
        VisionTower(Plan(no_encoder, 1, SIDE, tiny_clip()))
    with pytest.raises(UserError, match="sees images of 16 pixels; leave start_size out"):
        build(tiny_clip())(torch.zeros(1, 3, 12, 12))
    with pytest.raises(UserError, match="body 'clip' cannot be built from"):
        NetworkSpec("clip", "auto", 3, SIDE, body={"kind": "clip", "wdth": 3}).build()


def test_half_precision_and_facts_beside_the_weights_are_read(tmp_path: Path) -> None:
    half = {name: value.half() for name, value in tiny_clip().items()}
    half |= {"input_resolution": torch.tensor(224), "context_length": torch.tensor(77)}
    found = use_openai_names(half)
    assert found.keys() == tiny_clip().keys()
    assert {value.dtype for value in found.values()} == {torch.float32}
    file = tmp_path / "half.safetensors"
    save_file(half, file)
    NetworkSpec("clip", "auto", 3, SIDE, "none", body={"kind": "clip"}).build(str(file))


def test_a_program_in_place_of_weights_is_named(tmp_path: Path) -> None:
    """OpenAI's own files."""
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(tmp_path / "clip.pt"))
    with pytest.raises(UserError, match=r"clip\.pt is a TorchScript program, not weights; give its"):
        read_weights(str(tmp_path / "clip.pt"))


def test_the_head_gives_cosines_and_scaled_logits() -> None:
    head = build_head({"kind": "text", "classes": 2, "negatives": 1, "denies": True}, 2)
    assert isinstance(head, TextHead)
    assert build_head(head.describe(), 2).describe() == head.describe()
    head.text.copy_(torch.eye(2))
    head.negative_text.copy_(torch.tensor([[-1.0, 0.0], [0.6, 0.8]]))
    head.no_text.copy_(-torch.eye(2))
    z = torch.tensor([[3.0, 4.0]])
    found = {name: values.tolist()[0] for name, values in head.extra(z).items()}
    assert found["cosines"] == pytest.approx([0.6, 0.8])
    assert found["negative_cosines"] == pytest.approx([-0.6, 1.0])
    assert found["no_logits"] == pytest.approx([-60.0, -80.0])
    assert head(z)[0].tolist() == pytest.approx([60.0, 80.0])
    assert not list(head.parameters())
    assert build_head({"kind": "text", "classes": 2}, 2).extra(z).keys() == {"cosines"}


def test_the_best_patch_is_that_of_the_slow_one(tower: VisionTower) -> None:
    text = torch.nn.functional.normalize(images(3).flatten(1)[:, :DIM], dim=1)
    x = images(2)
    best = []
    for patches in tower.patches(x).detach():
        shares = [torch.softmax(p / p.norm() @ text.T, dim=0).max() for p in patches]
        best.append(float(max(shares)))
    own = TextHead(DIM, 3).double()
    own.text.copy_(text)
    whole = Network(tower, DIM, DIM, "none", own)
    whole.probe = PatchProbe(None)  # type: ignore[arg-type]
    assert whole.answer(x).extra["local_mcm"][:, 0].tolist() == pytest.approx(best)
