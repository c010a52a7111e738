"""Run the network over images once; every detector works from the result, which may be kept on disk.

A cache entry is named by everything the answer depends on: every weight, every pixel, the normalizer, and the
code that computes it. It can therefore never be stale, only unused. It is one .safetensors file in
``features/`` under the cache folder, written atomically, with its full key and a checksum of its values in
the header; a file that is cut off, damaged or not ours is computed anew. Deleting the folder is always safe.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from ..data import ImageSet, cache_limit, cache_root, make_room, mark_used
from ..detection import HeadWeights, Outputs
from ..errors import UserError
from ..files import add_tensors, checksum, read_tensors, write_atomically
from ..models import Network
from ..progress import progress
from ..views import Normalizer

_FORMAT = 3
_SECONDS_WORTH_KEEPING = 2.0
_EXTRA = "extra."
_FEWEST_IMAGES, _MOST_IMAGES = 16, 512
_PIXELS_AT_ONCE = 2**21


@torch.no_grad()
def extract(
    network: Network,
    normalizer: Normalizer,
    images: ImageSet,
    batch_size: int | None = None,
    what: str = "features",
    penultimate: bool = True,
) -> Outputs:
    """Return what the network says about all images (features, logits and more), in order, on the CPU.

    The images must have the size and channels that the network was trained with. ``penultimate``: keep what
    the encoder gives, too, for the detectors that want it; it may be several times as large as the features.
    """
    device = next(network.parameters()).device
    batch_size = batch_size or fit_batch(images.images.shape[-1])
    was_training = network.training
    network.eval()
    features: list[Tensor] = []
    logits: list[Tensor] = []
    activations: list[Tensor] = []
    keep = penultimate and not network.features_are_penultimate  # else the same numbers would be held twice
    extra: dict[str, list[Tensor]] = {}
    with progress(what, len(images)) as advance:
        for first in range(0, len(images), batch_size):
            batch = images.images[first : first + batch_size]
            # Reordered while they are bytes: the floats are four times as much to move.
            seen = normalizer(batch.to(device).contiguous(memory_format=torch.channels_last))
            answer = network.answer(seen)
            features.append(answer.features.cpu())
            if answer.logits is not None:
                logits.append(answer.logits.cpu())
            if keep and answer.penultimate is not None:
                activations.append(answer.penultimate.cpu())
            for name, values in answer.extra.items():
                extra.setdefault(name, []).append(values.float().cpu())
            advance(len(batch))
    network.train(was_training)
    if not features:  # no images: keep the shapes
        none = torch.empty(0, network.num_classes) if network.num_classes else None
        blank = torch.empty(0, int(network.encoder.dim)) if keep else None  # type: ignore[arg-type]
        found = Outputs(torch.empty(0, network.feature_dim), images.labels, none, penultimate=blank)
        return add_head(found, network) if penultimate else found
    joined = {name: torch.cat(parts) for name, parts in extra.items()}
    h = torch.cat(activations) if activations else None
    found = Outputs(torch.cat(features), images.labels, torch.cat(logits) if logits else None, joined, h)
    return add_head(found, network) if penultimate else found


def fit_batch(side: int) -> int:
    """Return how many square images of this side go through the network at once.

    Feature maps of more of them would not fit into memory that is at hand: the system would clear new pages
    for every layer, which can take as long as the network itself.

    >>> fit_batch(32), fit_batch(64), fit_batch(224)
    (512, 512, 41)
    """
    return max(_FEWEST_IMAGES, min(_MOST_IMAGES, _PIXELS_AT_ONCE // side**2))


@torch.no_grad()
def apply_projection(network: Network, encoded: Outputs, batch_size: int = 4096) -> Outputs:
    """Return what :func:`extract` returns, given what the encoder says: features that are its output."""
    device = next(network.parameters()).device
    features, logits = [], []
    for part in torch.split(encoded.features, batch_size):
        z = network.projection(part.to(device))
        features.append(network.features(z).cpu())
        said = network.logits(z)
        if said is not None:
            logits.append(said.cpu())
    found = Outputs(torch.cat(features), encoded.labels, torch.cat(logits) if logits else None)
    if not network.features_are_penultimate:
        found = replace(found, penultimate=encoded.features)
    return add_head(found, network)


def add_head(outputs: Outputs, network: Network) -> Outputs:
    """Add the network's linear head, and the penultimate activations where they are the features."""
    h = outputs.penultimate
    if h is None and network.features_are_penultimate:
        h = outputs.features
    return replace(outputs, penultimate=h, head=head_weights(network))


def head_weights(network: Network) -> HeadWeights | None:
    """Return the linear head on the penultimate activations, if there is one."""
    found = network.linear_head()
    return None if found is None else HeadWeights(*found)


def cached_extract(
    network: Network,
    normalizer: Normalizer,
    images: ImageSet,
    what: str = "features",
    use: bool = True,
    penultimate: bool = True,
) -> Outputs:
    """Call :func:`extract`, or return what it returned before for this network and images (if ``use``).

    Without ``penultimate``, it is not kept in memory; what goes through the cache always has it.
    """
    if not use or not len(images) or cache_limit() == 0:
        return extract(network, normalizer, images, what=what, penultimate=penultimate)
    key = features_key(network, normalizer, images)
    if key is None:
        return extract(network, normalizer, images, what=what)
    found = _load(key, len(images))
    if found is not None:
        extra = {n.removeprefix(_EXTRA): values for n, values in found.items() if n.startswith(_EXTRA)}
        h = found.get("penultimate")
        return add_head(Outputs(found["features"], images.labels, found.get("logits"), extra, h), network)
    started = time.monotonic()
    outputs = extract(network, normalizer, images, what=what)
    if time.monotonic() - started > _SECONDS_WORTH_KEEPING:
        save_outputs(key, outputs)
    return outputs


def features_key(network: Network, normalizer: Normalizer, images: ImageSet) -> str | None:
    """Return 64 hex digits that change with anything that changes what :func:`extract` returns.

    None if that cannot be told: a part of the network has no source file (it was written in a notebook).
    """
    code = _code_of(network)
    if code is None:
        return None
    device = next(network.parameters()).device.type
    head, probe = network.classifier, network.probe
    about = [
        _FORMAT,
        torch.__version__,
        device,
        repr(network),  # strides, paddings and the like are not in the weights
        None if head is None else head.describe(),
        None if probe is None else probe.describe(),
        network.unit_features,
        normalizer.mean,
        normalizer.std,
        images.content_hash(),
    ]
    digest = hashlib.sha256(json.dumps(about).encode())
    for file in code:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    add_tensors(digest, network.state_dict())
    return digest.hexdigest()


def _code_of(network: Network) -> list[Path] | None:
    """Return the source files of the network's parts (but torch's own), the normalizer and ``extract``."""
    parts = {type(module).__module__ for module in network.modules()}
    parts = {name for name in parts if not name.startswith("torch.")}
    parts |= {Normalizer.__module__, __name__}
    files = [Path(getattr(sys.modules.get(name), "__file__", None) or "") for name in sorted(parts)]
    return files if all(file.is_file() for file in files) else None


def _entry(key: str) -> Path:
    return cache_root() / "features" / f"{key[:32]}.safetensors"


def _load(key: str, count: int) -> dict[str, Tensor] | None:
    entry = _entry(key)
    if not entry.is_file():
        return None
    try:
        header, tensors = read_tensors(entry)
    except (OSError, ValueError):
        return None  # cut off or not ours: compute it again, and write it anew
    whole = header.get("key") == key and header.get("checksum") == checksum(tensors)
    if not whole or "features" not in tensors or any(len(values) != count for values in tensors.values()):
        return None
    mark_used(entry)
    return tensors


def save_outputs(key: str, outputs: Outputs) -> None:
    """Keep ``outputs`` under ``key`` if that is possible, and drop what was not used for longest."""
    entry = _entry(key)
    tensors = {"features": outputs.features.contiguous()}
    if outputs.logits is not None:
        tensors["logits"] = outputs.logits.contiguous()
    if outputs.penultimate is not None and outputs.penultimate is not outputs.features:
        tensors["penultimate"] = outputs.penultimate.contiguous()
    tensors |= {_EXTRA + name: values.contiguous() for name, values in outputs.extra.items()}
    header = {"key": key, "checksum": checksum(tensors)}
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(entry, lambda part: save_file(tensors, part, header))
        make_room(entry.parent)
    except (UserError, OSError, SafetensorError):
        pass  # a full or read-only cache folder costs time, not correctness
