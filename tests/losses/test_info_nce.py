"""InfoNCE against a loop, closed forms and its own symmetries."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from gradmix.losses import info_nce, nt_xent_clean_negatives


def loop(
    query: Tensor, key: Tensor, queue: Tensor, temperature: float, weight: Tensor | None = None
) -> Tensor:
    """Term by term from the equation."""
    total = query.new_zeros(())
    for i in range(len(query)):
        pull = torch.exp((query[i] * key[i]).sum() / temperature)
        push = query.new_zeros(())
        for negative in queue:
            push = push + torch.exp((query[i] * negative).sum() / temperature)
        total = total - torch.log(pull / (pull + push)) * (1 if weight is None else weight[i])
    return total / len(query)


def embeddings(n: int, size: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    raw = torch.randn(2 * n + size, d, generator=generator, dtype=torch.float64)
    query, key, queue = normalize(raw, dim=1).split([n, n, size])
    return query, key, queue


def gradients(loss: Callable[..., Tensor], z: tuple[Tensor, ...], *settings: object) -> tuple[Tensor, ...]:
    leaves = [part.clone().requires_grad_() for part in z]
    return torch.autograd.grad(loss(*leaves, *settings), leaves)


@pytest.mark.parametrize("temperature", [0.07, 0.5])
@pytest.mark.parametrize(("n", "size", "d"), [(1, 1, 3), (2, 7, 2), (5, 4, 4)])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_loop_in_value_and_gradient(
    temperature: float, n: int, size: int, d: int, weighted: bool
) -> None:
    z = embeddings(n, size, d)
    weight = torch.linspace(0.01, 0.25, n, dtype=torch.float64) if weighted else None
    torch.testing.assert_close(
        info_nce(*z, temperature, weight), loop(*z, temperature, weight), rtol=1e-10, atol=1e-12
    )
    mine, theirs = gradients(info_nce, z, temperature, weight), gradients(loop, z, temperature, weight)
    torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("size", [1, 6])
def test_all_embeddings_equal_give_log_of_1_plus_the_queue(size: int) -> None:
    z = normalize(torch.ones(3, 5, dtype=torch.float64), dim=1)
    queue = z[:1].expand(size, -1)
    assert info_nce(z, z, queue, 0.1).item() == pytest.approx(math.log(1 + size), abs=1e-12)


def test_orthogonal_negatives() -> None:
    z = torch.eye(8, dtype=torch.float64)
    query, queue = z[:3], z[3:]
    expected = math.log(1 + 5 * math.exp(-1 / 0.5))
    assert info_nce(query, query, queue, 0.5).item() == pytest.approx(expected, abs=1e-12)


def test_neither_order_matters() -> None:
    query, key, queue = embeddings(4, 6, 3)
    weight = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    order = torch.tensor([2, 0, 3, 1])
    shuffled = info_nce(query[order], key[order], queue.flip(0), 0.1, weight[order])
    torch.testing.assert_close(shuffled, info_nce(query, key, queue, 0.1, weight), rtol=1e-12, atol=0)


def test_weights_are_not_renormalised() -> None:
    z = embeddings(5, 6, 4)
    weighted = info_nce(*z, 0.1, torch.full((5,), 0.09, dtype=torch.float64))
    torch.testing.assert_close(weighted, 0.09 * info_nce(*z, 0.1), rtol=1e-12, atol=0)


def test_an_empty_queue_has_nothing_to_contrast() -> None:
    query, key, queue = embeddings(3, 0, 4)
    assert info_nce(query, key, queue, 0.1).item() == 0


def test_the_batch_as_its_queue_is_nt_xent_with_the_same_negatives() -> None:
    """One image against a queue made of another's two views: NT-Xent's denominator for the first image."""
    anchor, other, _ = embeddings(2, 0, 4)
    first = torch.tensor([2.0, 0.0], dtype=torch.float64)  # 2: the mean over two images, of which one counts
    wanted = nt_xent_clean_negatives(anchor, other, other, 0.2, first)
    queue = torch.stack([anchor[1], other[1]])
    torch.testing.assert_close(info_nce(anchor[:1], other[:1], queue, 0.2), wanted, rtol=1e-12, atol=0)


def test_single_precision_survives_a_tiny_temperature() -> None:
    z = embeddings(5, 9, 4)
    single = tuple(part.float() for part in z)
    torch.testing.assert_close(info_nce(*single, 0.005).double(), info_nce(*z, 0.005), rtol=1e-4, atol=1e-4)
    assert all(g.isfinite().all() for g in gradients(info_nce, single, 0.005))
