"""Images with edges, ramps and texture, so that every corruption has something to spoil."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradmix.data.corruptions import FrostPictures
from gradmix.data.corruptions.frost_pictures import generate_frost


def structured(n: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    """(n, channels, height, width) uint8: random patterns of falling size on one another, as photos have."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.full((n, channels, height, width), 0.05)
    for cells, share in ((3, 0.4), (7, 0.2), (15, 0.15), (31, 0.1), (63, 0.05)):
        pattern = torch.rand(n, channels, cells, cells, generator=generator)
        image += share * torch.nn.functional.interpolate(pattern, (height, width), mode="bilinear")
    return (image * 255).to(torch.uint8)


@pytest.fixture(scope="session")
def ice() -> FrostPictures:
    return generate_frost()


@pytest.fixture
def make_images():  # type: ignore[no-untyped-def]
    return structured
