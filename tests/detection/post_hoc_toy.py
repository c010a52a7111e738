"""One small evaluation for all post-hoc scores: clusters of activations, and a head that finds them."""

from __future__ import annotations

import torch

from gradmix.detection import DETECTORS, HeadWeights, Outputs
from tests.reference import post_hoc as reference

CLASSES, DIM = 3, 10
OF_H = [name for name, kind in DETECTORS.items() if kind.needs & {"penultimate", "head"}]
NEW = [*OF_H, "gen", "temperature", "klm", "knn_distance", "rmds"]


def toy(count: int, seed: int, spread: float = 1.0) -> Outputs:
    """Activations h ≥ 0 and their logits; float64, so that loops agree to many digits."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    clusters = 2 * torch.eye(CLASSES, DIM, dtype=torch.float64)
    noise = torch.randn(count, DIM, generator=generator, dtype=torch.float64)
    h = (clusters[labels] + spread * noise + 0.5).relu()
    fixed = torch.Generator().manual_seed(9)
    weight = clusters / 2 + 0.3 * torch.randn(CLASSES, DIM, generator=fixed, dtype=torch.float64)
    head = HeadWeights(weight, torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64))
    return Outputs(h, labels, head.logits(h), penultimate=h, head=head)


def as_data(outputs: Outputs) -> reference.Data:
    assert outputs.penultimate is not None
    assert outputs.logits is not None
    assert outputs.head is not None
    parts = (outputs.penultimate, outputs.labels, outputs.logits, outputs.head.weight, outputs.head.bias)
    return reference.Data(*(part.numpy() for part in parts))


TRAIN, TEST = toy(60, 0), toy(12, 1, spread=2.0)
