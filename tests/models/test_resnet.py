from __future__ import annotations

import pytest
import torch

from gradmix.attribution import resolve_layer
from gradmix.errors import UserError
from gradmix.models import ENCODERS, LinearHead, ModelSettings, Network, ResNet, build_encoder
from gradmix.models.encoders import resolve_stem
from gradmix.models.resnet import BasicBlock

Shapes = dict[str, tuple[int, ...]]
STAGES = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}
PARAMETERS = {"resnet18": 11_176_512, "resnet34": 21_284_672, "resnet50": 23_508_032}  # without fc


def batch_norm(name: str, width: int) -> Shapes:
    shapes: Shapes = {
        f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")
    }
    return shapes | {f"{name}.num_batches_tracked": ()}


def published_layout(depth: str) -> Shapes:
    """Names and shapes of the public ImageNet checkpoints (torchvision's and timm's), without ``fc``."""
    bottleneck = depth == "resnet50"
    shapes: Shapes = {"conv1.weight": (64, 3, 7, 7), **batch_norm("bn1", 64)}
    here = 64
    for stage, blocks in enumerate(STAGES[depth], start=1):
        width = 64 * 2 ** (stage - 1)
        out = 4 * width if bottleneck else width
        for block in range(blocks):
            at = f"layer{stage}.{block}"
            if bottleneck:
                kernels = [(width, here, 1, 1), (width, width, 3, 3), (out, width, 1, 1)]
            else:
                kernels = [(width, here, 3, 3), (width, width, 3, 3)]
            for i, kernel in enumerate(kernels, start=1):
                shapes[f"{at}.conv{i}.weight"] = kernel
                shapes |= batch_norm(f"{at}.bn{i}", kernel[0])
            if block == 0 and (stage > 1 or bottleneck):
                shapes[f"{at}.downsample.0.weight"] = (out, here, 1, 1)
                shapes |= batch_norm(f"{at}.downsample.1", out)
            here = out
    return shapes


@pytest.mark.parametrize("depth", STAGES)
def test_names_and_shapes_are_the_published_ones(depth: str) -> None:
    with torch.device("meta"):
        encoder = ENCODERS[depth](3, "imagenet")
    found = {name: tuple(value.shape) for name, value in encoder.state_dict().items()}
    assert found == published_layout(depth)
    assert sum(p.numel() for p in encoder.parameters()) == PARAMETERS[depth]
    assert encoder.dim == (2048 if depth == "resnet50" else 512)


def test_strides_are_where_published_weights_expect_them() -> None:
    with torch.device("meta"):
        basic, bottleneck = ENCODERS["resnet18"](3, "imagenet"), ENCODERS["resnet50"](3, "imagenet")
    assert basic.get_submodule("layer2.0.conv1").stride == (2, 2)
    assert bottleneck.get_submodule("layer2.0.conv1").stride == (1, 1)
    assert bottleneck.get_submodule("layer2.0.conv2").stride == (2, 2)
    assert basic.get_submodule("layer1.0.conv1").stride == (1, 1)


@pytest.mark.parametrize(
    ("depth", "last_blocks"),
    [("resnet18", (1, 1, 1, 1)), ("resnet34", (2, 3, 5, 2)), ("resnet50", (2, 3, 5, 2))],
)
def test_the_papers_layer_names(depth: str, last_blocks: tuple[int, ...]) -> None:
    with torch.device("meta"):
        encoder = ENCODERS[depth](3, "small")
    for stage, block in enumerate(last_blocks, start=1):
        module = resolve_layer(encoder, f"conv{stage + 1}_2")
        assert module is encoder.get_submodule(f"layer{stage}.{block}")
    assert resolve_layer(encoder, "layer3.0.conv1") is encoder.get_submodule("layer3.0.conv1")


@pytest.mark.parametrize(
    ("stem", "side", "sides"),
    [("small", 32, (32, 16, 8, 4)), ("half", 32, (16, 8, 4, 2)), ("imagenet", 64, (16, 8, 4, 2))],
)
def test_stems_decide_the_resolution(stem: str, side: int, sides: tuple[int, ...]) -> None:
    encoder = ENCODERS["resnet10_16"](1, stem)
    found = []
    for stage in range(1, 5):
        module = encoder.get_submodule(f"layer{stage}")
        module.register_forward_hook(lambda module, inputs, output: found.append(output.shape[-1]))
    assert encoder(torch.zeros(2, 1, side, side)).shape == (2, encoder.dim)
    assert tuple(found) == sides


@pytest.mark.parametrize(
    ("size", "stem"), [(8, "small"), (28, "small"), (64, "small"), (65, "imagenet"), (224, "imagenet")]
)
def test_the_stem_follows_the_image_size(size: int, stem: str) -> None:
    assert resolve_stem("auto", size) == stem
    assert resolve_stem("half", size) == "half"


def test_a_pass_computes_what_the_paper_draws() -> None:
    """One basic block by hand: ReLU(BN(conv(ReLU(BN(conv x)))) + x)."""
    torch.manual_seed(0)
    encoder = ENCODERS["resnet10_16"](3, "small").eval()
    block = encoder.get_submodule("layer1.0")
    x = torch.rand(2, 16, 5, 5)
    inner = torch.relu(block.bn1(block.conv1(x)))
    torch.testing.assert_close(block(x.clone()), torch.relu(block.bn2(block.conv2(inner)) + x))


def test_width_is_in_the_name() -> None:
    for width in (16, 32, 48, 64):
        assert ENCODERS[f"resnet10_{width}"](3, "half").dim == 8 * width


def test_network_projects_and_classifies() -> None:
    encoder = build_encoder(ModelSettings("resnet10_16"), 16, 3)
    images = torch.rand(4, 3, 16, 16)
    plain = Network(encoder, 128, 10)
    assert plain(images).shape == (4, 10)
    assert plain.logits(plain(images)) is None
    both = Network(encoder, 128, 10, "mlp", LinearHead(10, 7))
    assert both.logits(both(images)).shape == (4, 7)


def test_weights_come_from_the_global_generator() -> None:
    def weights(seed: int) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return build_encoder(ModelSettings("resnet10_16"), 16, 3).conv1.weight.detach()

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("encoder", "resnt18", "did you mean 'resnet18'"),
        ("stem", "smal", "did you mean 'small'"),
        ("projection", "lin", "did you mean 'linear'"),
        ("feature_dim", 0, "feature_dim must be at least 1"),
    ],
)
def test_wrong_settings_are_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ModelSettings(**{field: value})


def test_a_resnet_checks_its_stem_itself() -> None:
    with pytest.raises(UserError, match="did you mean 'imagenet'"):
        ResNet(BasicBlock, (1,), stem="imagnet")
