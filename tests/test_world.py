"""Every collective, against what one process with all the rows computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from gradmix.errors import UserError
from gradmix.losses import nt_xent
from gradmix.world import ALONE, Processes, World
from tests.processes import in_processes


def test_alone_is_the_identity() -> None:
    z = torch.randn(6, 3)
    assert ALONE.union(z) is z
    assert ALONE.rows(6) == slice(0, 6)
    assert torch.equal(ALONE.picked(z, torch.tensor([5, 4, 3, 2, 1, 0])), z.flip(0))
    assert ALONE.any(True, False) == (True, False)
    assert ALONE.from_first(lambda: {"a": [1, 2.5, None]}) == {"a": [1, 2.5, None]}
    with pytest.raises(UserError, match="mine"), ALONE.together():
        raise UserError("mine")
    with pytest.raises(UserError, match="made"):
        ALONE.from_first(_refuse)


def _refuse() -> None:
    raise UserError("made a mistake")


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_several_processes(size: int, tmp_path: Path) -> None:
    in_processes(size, check_all, tmp_path)


def check_all(world: World, folder: Path) -> None:
    assert isinstance(world, Processes)
    check_shares(world)
    check_union_and_its_gradient(world)
    check_picked(world)
    check_sums(world)
    check_agreement(world)
    check_what_is_sent(world)
    check_mistakes(world)


def union_batch(world: World, *shape: int) -> torch.Tensor:
    """The same on every rank."""
    return torch.randn(4 * world.size, *shape, generator=torch.Generator().manual_seed(0))


def check_shares(world: World) -> None:
    every_row = torch.arange(4 * world.size)
    assert torch.equal(world.union(every_row[world.rows(len(every_row))]), every_row)


def check_union_and_its_gradient(world: World) -> None:
    """Negatives of other processes count: the own rows' gradient is that of the whole batch's loss."""
    both = union_batch(world, 2, 5).requires_grad_()
    own = both.detach()[world.rows(len(both))].requires_grad_()
    loss = nt_xent(F.normalize(both[:, 0], dim=1), F.normalize(both[:, 1], dim=1), 0.2)
    (whole,) = torch.autograd.grad(loss, both)
    z1, z2 = (F.normalize(world.union(own[:, i]), dim=1) for i in range(2))
    ours = nt_xent(z1, z2, 0.2)
    (part,) = torch.autograd.grad(ours, own)
    torch.testing.assert_close(ours, loss)
    torch.testing.assert_close(part, whole[world.rows(len(both))])


def check_picked(world: World) -> None:
    images = union_batch(world, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    n = len(images)
    own = images[world.rows(n)].contiguous(memory_format=torch.channels_last)
    for seed in range(5):
        index = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        got = world.picked(own, index)
        assert torch.equal(got, images[index][world.rows(n)])
        assert got.is_contiguous(memory_format=torch.channels_last)
        back = world.picked(got, torch.argsort(index))
        assert torch.equal(back, own)
    # Nobody wants the rows of the last rank, or everyone only its own.
    turned = torch.arange(n).roll(4)
    assert torch.equal(world.picked(own, turned), images[turned][world.rows(n)])
    assert torch.equal(world.picked(own, torch.arange(n)), own)


def check_sums(world: World) -> None:
    a, b = torch.full((2, 3), float(world.rank)), torch.ones(1)
    before = world.calls["reduce"] if isinstance(world, Processes) else 0
    world.add_up([a, b])
    assert torch.equal(a, torch.full((2, 3), sum(range(world.size)) * 1.0))
    assert b.item() == world.size
    assert isinstance(world, Processes)
    assert world.calls["reduce"] == before + 1
    assert world.bytes["reduce"] >= 7 * 4


def check_agreement(world: World) -> None:
    assert world.any(False, world.rank == 1) == (False, True)


def check_what_is_sent(world: World) -> None:
    assert world.bytes_of_first(f"of {world.rank}".encode()) == b"of 0"
    assert world.bytes_of_first(b"") == b""
    assert world.from_first(lambda: {"rank": world.rank}) == {"rank": 0}


def check_mistakes(world: World) -> None:
    with pytest.raises(UserError, match=r"^process 1: no such folder$"):
        refuse_on_rank_1(world)
    with pytest.raises(UserError, match=r"^made a mistake$"):
        world.from_first(_refuse)
    with world.together():
        pass


def refuse_on_rank_1(world: World) -> None:
    with world.together():
        if world.rank == 1:
            raise UserError("no such folder")
