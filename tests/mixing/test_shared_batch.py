"""Processes that share a batch mix as one process would."""

from __future__ import annotations

import pytest
import torch

from gradmix.distributed import ProcessGroup
from gradmix.mixing import CutMix, GradMix, Mixer, Mixup


class Part(ProcessGroup):
    """One of several processes, without the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    "mixer",
    [
        GradMix(),
        GradMix(gamma_per="batch", locate="window", patch="crop"),
        CutMix(),
        CutMix(alpha=1.0, gamma_per="batch"),
        Mixup(),
    ],
    ids=str,
)
def test_each_process_mixes_its_rows(mixer: Mixer, size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    images, partners = torch.rand(2, 8, 3, 12, 12, generator=generator)
    maps = torch.rand(8, 12, 12, generator=generator)
    whole = mixer(images, partners, maps, torch.Generator().manual_seed(1))
    for rank in range(size):
        group = Part(rank, size)
        own = group.rows(8)
        draws = mixer.draw(8, torch.Generator().manual_seed(1))[own]
        mixed = mixer.apply(images[own], partners[own], maps[own], draws)
        torch.testing.assert_close(mixed.images, whole.images[own])
        assert torch.equal(mixed.share, whole.share[own])
        if whole.boxes is not None:
            assert mixed.boxes is not None
            assert torch.equal(mixed.boxes.top, whole.boxes.rows(own).top)
