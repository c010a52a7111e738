"""Feature extraction against the bare network, and from the cache."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from unittest.mock import patch

import torch

from ..data import ImageSet
from ..recognition import cached_extract, extract
from ..recognition.features import features_key, save_outputs
from ..training import make_recipe
from ..training.seeds import generator_for
from ..training.session import build_network
from ..views import Normalizer
from .rounds import Timing, take_turns

BARE, OURS, AGAIN = "network alone", "extract", "extract, cached"
_BATCH = 512


def bench_extract(encoder: str, stem: str, image_size: int, images: int, rounds: int) -> list[Timing]:
    """Time features of random images. The network alone gets normalized batches prepared beforehand."""
    recipe = make_recipe({"encoder": encoder, "stem": stem, "image_size": image_size})
    network = build_network(recipe, 6).eval()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    generator = generator_for(0, "bench extract")
    pixels = torch.randint(0, 256, (images, 3, image_size, image_size), generator=generator)
    data = ImageSet(pixels.to(torch.uint8), torch.zeros(images, dtype=torch.int64), ("a",))
    normalizer = Normalizer.fit(data.images)
    ready = [
        normalizer(data.images[first : first + _BATCH]).contiguous(memory_format=torch.channels_last)
        for first in range(0, images, _BATCH)
    ]

    def bare() -> None:
        with torch.inference_mode():
            for batch in ready:
                network(batch)

    contestants: dict[str, Callable[[], object]] = {
        BARE: bare,
        OURS: lambda: extract(network, normalizer, data, _BATCH),
        AGAIN: lambda: cached_extract(network, normalizer, data),
    }
    with tempfile.TemporaryDirectory() as folder, patch.dict("os.environ", {"GRADMIX_CACHE": folder}):
        key = features_key(network, normalizer, data)
        assert key is not None
        save_outputs(key, extract(network, normalizer, data, _BATCH))
        return take_turns(contestants, BARE, rounds)
