"""EfficientNet-Lite against the package that its PyTorch weights were published with."""

from __future__ import annotations

import pytest
import torch

from gradmix.models import ENCODERS, NetworkSpec, read_weights
from gradmix.models.published import PRETRAINED, find_weights

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("size", [0, 1, 2])
def test_same_weights_same_logits(size: int) -> None:
    from efficientnet_lite_pytorch import EfficientNet

    name = f"efficientnet_lite{size}"
    file = find_weights(PRETRAINED, name)
    theirs = EfficientNet.from_pretrained(f"efficientnet-lite{size}", weights_path=file).eval().double()
    head = {"kind": "linear", "classes": 1000, "bias": True}
    spec = NetworkSpec(name, "auto", 3, 96, "none", head=head)
    ours = spec.build(PRETRAINED, init_head=True).eval().double()
    # Their padding is fixed for the native size; ours follows the image: compared where both are meant.
    side = EfficientNet.get_image_size(f"efficientnet-lite{size}")
    images = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(size)).double() * 2 - 1
    with torch.no_grad():
        expected = theirs(images)
        answer = ours.answer(images)
    assert answer.logits is not None
    assert expected.std() > 0.5  # they say something
    torch.testing.assert_close(answer.logits, expected, rtol=0, atol=1e-5)


def test_nothing_of_the_file_is_left_out() -> None:
    weights = read_weights(find_weights(PRETRAINED, "efficientnet_lite0"))
    own = ENCODERS["efficientnet_lite0"](3, "imagenet").state_dict()
    assert set(weights) - set(own) == {"fc.weight", "fc.bias"}
    assert not set(own) - set(weights)
