"""Processes that share a batch see the views that one process would see."""

from __future__ import annotations

import pytest
import torch

from gradmix.distributed import ProcessGroup
from gradmix.views import Augment, Normalizer, ViewSettings


class Part(ProcessGroup):
    """One of several processes, without the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [2, 4])
def test_the_views_of_an_image_do_not_depend_on_the_number_of_processes(size: int, channels: int) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (8, channels, 16, 16), generator=generator).to(torch.uint8)
    settings = ViewSettings(image_size=16, channels=channels, rotate=10.0)
    normalizer = Normalizer.fit(images)
    whole = Augment(settings, normalizer)(images, torch.Generator().manual_seed(1))
    states = []
    for rank in range(size):
        group, drawn = Part(rank, size), torch.Generator().manual_seed(1)
        own = group.rows(8)
        augment = Augment(settings, normalizer)
        view = augment.apply(images[own], augment.draw(8, drawn)[own])
        torch.testing.assert_close(view, whole[own])
        states.append(drawn.get_state())
    assert all(torch.equal(state, states[0]) for state in states)  # the next draw is everyone's too
