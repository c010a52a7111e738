"""The body that sees an image beside its reconstruction."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradmix.attribution import Capture
from gradmix.errors import UserError
from gradmix.models import ENCODERS, Network, NetworkSpec, Plan, Reconstruct
from gradmix.models.backbone import Backbone
from gradmix.models.reconstruct import Autoencoder
from gradmix.recognition.explain import last_layer


def network(encoder: str = "conv7_16", channels: int = 3, init: str = "") -> Network:
    torch.manual_seed(0)
    head = {"kind": "linear", "classes": 4}
    body = {"kind": "reconstruct", "widths": [8, 4]}
    spec = NetworkSpec(encoder, "small", channels, 16, "none", head=head, body=body)
    return NetworkSpec.from_description(spec.describe()).build(init)


def body_of(made: Network) -> Reconstruct:
    assert isinstance(made.encoder, Reconstruct)
    return made.encoder


@pytest.mark.parametrize("size", [8, 11, 16, 28])
@pytest.mark.parametrize("widths", [(4,), (8, 4), (8, 8, 4)])
def test_reconstructions_have_the_size_of_the_images(size: int, widths: tuple[int, ...]) -> None:
    made = Autoencoder(1, widths)(torch.randn(2, 1, size, size))
    assert made.shape == (2, 1, size, size)


@pytest.mark.parametrize("encoder", ["conv7_16", "resnet8_16", "vgg32_plain"])
def test_with_weights_w_and_0_it_is_the_network_of_the_image_alone(encoder: str) -> None:
    made = network(encoder).double()
    body, plain = body_of(made), ENCODERS[encoder](3, "small").double()
    weights = {name: value.clone() for name, value in plain.state_dict().items()}
    weights["conv1.weight"] = torch.cat(
        [weights["conv1.weight"], torch.zeros_like(weights["conv1.weight"])], 1
    )
    body.encoder.load_state_dict(weights)
    x = torch.randn(3, 3, 16, 16, dtype=torch.float64)
    assert made.classifier is not None
    wanted = made.classifier(plain.eval()(x))
    torch.testing.assert_close(made.eval().answer(x).logits, wanted)  # whatever the reconstruction
    body.autoencoder = nn.Identity()  # type: ignore[assignment]
    torch.testing.assert_close(made.answer(x).logits, wanted)


@pytest.mark.parametrize("channels", [1, 3])
def test_published_weights_are_halved_for_two_images(channels: int, tmp_path: Path) -> None:
    torch.manual_seed(1)
    published = ENCODERS["resnet8_16"](3, "small")
    torch.save(published.state_dict(), tmp_path / "published.pth")
    body = body_of(network("resnet8_16", channels, str(tmp_path / "published.pth"))).eval()
    body.autoencoder = nn.Identity()  # type: ignore[assignment]
    assert body.encoder.get_parameter("conv1.weight").shape[1] == 2 * channels
    x = torch.randn(2, channels, 16, 16)
    with torch.no_grad():  # a gray image, as color
        wanted = published.eval()(x.expand(-1, 3, -1, -1))
        torch.testing.assert_close(body(x), wanted, rtol=1e-4, atol=1e-5)  # sums in another order


def test_the_pair_is_the_image_and_its_reconstruction() -> None:
    body = body_of(network())
    seen: list[Tensor] = []
    body.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    x = torch.randn(2, 3, 16, 16)
    body.eval()(x)
    assert torch.equal(seen[0][:, :3], x)
    assert torch.equal(seen[0][:, 3:], body.autoencoder(x))
    assert torch.equal(seen[0], body.pair(x))


def test_its_layers_are_those_of_the_encoder() -> None:
    made = network()
    assert last_layer(made) == ("conv4_2",)
    with Capture(made, ["conv2_2", "conv4_2"]) as capture:
        made(torch.randn(2, 3, 16, 16))
        first, last = capture.activations()
    assert (first.shape, last.shape) == ((2, 16, 8, 8), (2, 64, 2, 2))


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(UserError, match="at least one width"):
        Autoencoder(3, ())
    own = Backbone(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
    with pytest.raises(UserError, match="grrosr needs an encoder of 6 channels, which Backbone is not"):
        Reconstruct(Plan(lambda _: own, 3, 16))  # type: ignore[arg-type, return-value]
