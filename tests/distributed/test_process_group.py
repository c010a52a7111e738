"""Every collective, against what one process with all the rows computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from gradmix.distributed import SINGLE_PROCESS, ProcessGroup, TorchProcessGroup
from gradmix.distributed.gradients import average_gradients, gather_rows
from gradmix.errors import UserError
from gradmix.losses import nt_xent
from tests.processes import in_processes


def test_alone_is_the_identity() -> None:
    z = torch.randn(6, 3)
    assert SINGLE_PROCESS.all_gather(z) is z
    assert SINGLE_PROCESS.rows(6) == slice(0, 6)
    assert torch.equal(SINGLE_PROCESS.exchange_rows(z, torch.tensor([5, 4, 3, 2, 1, 0])), z.flip(0))
    assert SINGLE_PROCESS.any(True, False) == (True, False)
    assert SINGLE_PROCESS.from_first(lambda: {"a": [1, 2.5, None]}) == {"a": [1, 2.5, None]}
    with pytest.raises(UserError, match="mine"), SINGLE_PROCESS.raise_together():
        raise UserError("mine")
    with pytest.raises(UserError, match="made"):
        SINGLE_PROCESS.from_first(_refuse)


def _refuse() -> None:
    raise UserError("made a mistake")


class Twins(ProcessGroup):
    """Two processes, of which the other one has the same rows and the same gradients."""

    size = 2

    def all_gather(self, own: torch.Tensor) -> torch.Tensor:
        return torch.cat([own, own.detach()])

    def all_reduce_(self, tensors: Sequence[torch.Tensor]) -> None:
        for tensor in tensors:
            tensor *= 2


def test_gradients_of_rows_are_scaled_and_averaged() -> None:
    """1/p · Σ p · (own rows' part) before the gather, 1/p · Σ (the whole) after it."""
    encoder, head = torch.nn.Linear(3, 2, bias=False), torch.nn.Linear(2, 1)
    idle = torch.nn.Parameter(torch.ones(1))  # has no gradient, and gets none
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    whole = torch.autograd.grad(head(encoder(torch.cat([x, x]))).sum(), [encoder.weight, head.weight])
    head(gather_rows(encoder(x), Twins())).sum().backward()
    average_gradients([encoder.weight, idle, head.weight], Twins())
    torch.testing.assert_close([encoder.weight.grad, head.weight.grad], list(whole))
    assert idle.grad is None
    assert gather_rows(x, SINGLE_PROCESS) is x


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_several_processes(size: int, tmp_path: Path) -> None:
    in_processes(size, check_all, tmp_path)


def check_all(group: ProcessGroup, folder: Path) -> None:
    assert isinstance(group, TorchProcessGroup)
    check_shares(group)
    check_union_and_its_gradient(group)
    check_picked(group)
    check_sums(group)
    check_agreement(group)
    check_what_is_sent(group)
    check_mistakes(group)


def union_batch(group: ProcessGroup, *shape: int) -> torch.Tensor:
    """The same on every rank."""
    return torch.randn(4 * group.size, *shape, generator=torch.Generator().manual_seed(0))


def check_shares(group: ProcessGroup) -> None:
    every_row = torch.arange(4 * group.size)
    assert torch.equal(group.all_gather(every_row[group.rows(len(every_row))]), every_row)


def check_union_and_its_gradient(group: ProcessGroup) -> None:
    """Negatives of other processes count: the own rows' gradient is that of the whole batch's loss."""
    both = union_batch(group, 2, 5).requires_grad_()
    own = both.detach()[group.rows(len(both))].requires_grad_()
    loss = nt_xent(F.normalize(both[:, 0], dim=1), F.normalize(both[:, 1], dim=1), 0.2)
    (whole,) = torch.autograd.grad(loss, both)
    z1, z2 = (F.normalize(group.all_gather(own[:, i]), dim=1) for i in range(2))
    ours = nt_xent(z1, z2, 0.2)
    (part,) = torch.autograd.grad(ours, own)
    torch.testing.assert_close(ours, loss)
    torch.testing.assert_close(part, whole[group.rows(len(both))])


def check_picked(group: ProcessGroup) -> None:
    images = union_batch(group, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    n = len(images)
    own = images[group.rows(n)].contiguous(memory_format=torch.channels_last)
    for seed in range(5):
        index = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        got = group.exchange_rows(own, index)
        assert torch.equal(got, images[index][group.rows(n)])
        assert got.is_contiguous(memory_format=torch.channels_last)
        back = group.exchange_rows(got, torch.argsort(index))
        assert torch.equal(back, own)
    # Nobody wants the rows of the last rank, or everyone only its own.
    turned = torch.arange(n).roll(4)
    assert torch.equal(group.exchange_rows(own, turned), images[turned][group.rows(n)])
    assert torch.equal(group.exchange_rows(own, torch.arange(n)), own)


def check_sums(group: ProcessGroup) -> None:
    a, b = torch.full((2, 3), float(group.rank)), torch.ones(1)
    before = group.calls["reduce"] if isinstance(group, TorchProcessGroup) else 0
    group.all_reduce_([a, b])
    assert torch.equal(a, torch.full((2, 3), sum(range(group.size)) * 1.0))
    assert b.item() == group.size
    assert isinstance(group, TorchProcessGroup)
    assert group.calls["reduce"] == before + 1
    assert group.bytes["reduce"] >= 7 * 4


def check_agreement(group: ProcessGroup) -> None:
    assert group.any(False, group.rank == 1) == (False, True)


def check_what_is_sent(group: ProcessGroup) -> None:
    assert group.broadcast_bytes(f"of {group.rank}".encode()) == b"of 0"
    assert group.broadcast_bytes(b"") == b""
    assert group.from_first(lambda: {"rank": group.rank}) == {"rank": 0}


def check_mistakes(group: ProcessGroup) -> None:
    with pytest.raises(UserError, match=r"^process 1: no such folder$"):
        refuse_on_rank_1(group)
    with pytest.raises(UserError, match=r"^made a mistake$"):
        group.from_first(_refuse)
    with group.raise_together():
        pass


def refuse_on_rank_1(group: ProcessGroup) -> None:
    with group.raise_together():
        if group.rank == 1:
            raise UserError("no such folder")
