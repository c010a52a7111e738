"""Run the network over images once; every detector works from the result."""

from __future__ import annotations

import torch

from ..data import ImageSet
from ..detection import Outputs
from ..models import Network
from ..progress import progress
from ..views import Normalizer


@torch.no_grad()
def extract(
    network: Network, normalizer: Normalizer, images: ImageSet, batch_size: int = 512, what: str = "features"
) -> Outputs:
    """Embeddings (and logits, if the network classifies) of all images, in order, on the CPU.

    The images must have the size and channels that the network was trained with.
    """
    device = next(network.parameters()).device
    was_training = network.training
    network.eval()
    features, logits = [], []
    with progress(what, len(images)) as advance:
        for first in range(0, len(images), batch_size):
            batch = images.images[first : first + batch_size]
            # Reordered while they are bytes: the floats are four times as much to move.
            seen = normalizer(batch.to(device).contiguous(memory_format=torch.channels_last))
            z = network(seen)
            features.append(network.features(z).cpu())
            answer = network.logits(z)
            if answer is not None:
                logits.append(answer.cpu())
            advance(len(batch))
    network.train(was_training)
    if not features:  # no images: keep the shapes
        z = torch.empty(0, network.feature_dim)
        return Outputs(z, images.labels)
    return Outputs(torch.cat(features), images.labels, torch.cat(logits) if logits else None)
