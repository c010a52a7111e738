"""BatchNorm over a union batch, against torch's over the same rows in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradmix.distributed import SINGLE_PROCESS, ProcessGroup
from gradmix.distributed.batch_norm import (
    SyncedBatchNorm,
    average_statistics,
    statistics_are_local,
    synchronize,
)
from gradmix.models import ModelSettings, Network, build_encoder
from tests.processes import in_processes

SHAPES = {"2d": (8, 3, 4, 4), "1d": (8, 3)}


def plain_norm(shape: tuple[int, ...]) -> nn.BatchNorm2d | nn.BatchNorm1d:
    norm = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(shape[1])
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, 2.0, -1.0]))
        norm.bias.copy_(torch.tensor([0.1, 0.0, 3.0]))
    return norm


def data(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """(x, ∂L/∂y) of the union; channels far from zero, where careless sums lose their digits."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator) + torch.tensor([100.0, 0.0, -5.0]).view(
        1, 3, *[1] * (len(shape) - 2)
    )
    return x, torch.randn(shape, generator=generator)


def outcome(norm: nn.Module, x: Tensor, dy: Tensor) -> dict[str, Tensor]:
    x = x.clone().requires_grad_()
    for parameter in norm.parameters():
        parameter.grad = None
    y = norm(x)
    y.backward(dy)
    gradients = {f"d{name}": p.grad for name, p in norm.named_parameters() if p.grad is not None}
    assert x.grad is not None
    return {"y": y.detach(), "dx": x.grad, **gradients, **dict(norm.named_buffers())}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_one_process_is_plain_batch_norm(shape: tuple[int, ...]) -> None:
    plain, x, dy = plain_norm(shape), *data(shape)
    ours = SyncedBatchNorm.from_plain(plain_norm(shape), SINGLE_PROCESS)
    theirs, mine = outcome(plain, x, dy), outcome(ours, x, dy)
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(mine[name], value, rtol=1e-5, atol=1e-4 if name == "y" else 1e-5, msg=name)
    plain.load_state_dict(ours.state_dict())
    assert torch.equal(ours.eval()(x), plain.eval()(x))


def test_names_and_values_stay() -> None:
    class Two(ProcessGroup):
        size = 2

    network = Network(build_encoder(ModelSettings("resnet8_16"), 16, 3), 64, 8, "mlp")
    before = {name: value.clone() for name, value in network.state_dict().items()}
    pointers = {name: value.data_ptr() for name, value in network.named_parameters()}
    assert statistics_are_local(network)
    synchronize(network, SINGLE_PROCESS)
    assert statistics_are_local(network)
    synchronize(network, Two())
    assert not statistics_are_local(network)
    after = network.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert {name: value.data_ptr() for name, value in network.named_parameters()} == pointers


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_several_processes_have_the_unions_statistics(size: int, tmp_path: Path) -> None:
    in_processes(size, check_union_statistics, tmp_path)


def check_union_statistics(group: ProcessGroup, folder: Path) -> None:
    for shape in SHAPES.values():
        x, dy = data(shape)
        own = group.rows(len(x))
        whole = outcome(plain_norm(shape), x, dy)
        ours = outcome(SyncedBatchNorm.from_plain(plain_norm(shape), group), x[own], dy[own])
        group.all_reduce_([ours["dweight"], ours["dbias"]])
        for name, value in whole.items():
            expected = value[own] if name in ("y", "dx") else value
            tolerance = 1e-4 if name == "y" else 1e-5
            torch.testing.assert_close(ours[name], expected, rtol=1e-5, atol=tolerance, msg=name)
    local = plain_norm(SHAPES["2d"])
    x, dy = data(SHAPES["2d"])
    local(x[group.rows(len(x))])
    average_statistics(local, group)
    assert local.running_mean is not None
    torch.testing.assert_close(local.running_mean, 0.1 * x.mean((0, 2, 3)))
