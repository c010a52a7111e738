"""CLIP's patches, LoCoOp's and NegPrompt's losses, slowly: one image, one patch, one text at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F


def softmax(values: list[float]) -> list[float]:
    shares = [math.exp(value - max(values)) for value in values]
    return [share / sum(shares) for share in shares]


def cross_entropy(logits: list[list[float]], labels: list[int]) -> float:
    losses = [-math.log(softmax(row)[label]) for row, label in zip(logits, labels, strict=True)]
    return sum(losses) / len(losses)


def background_entropy(patches: list[list[list[float]]], labels: list[int], top: int) -> float:
    """Of logits of image, patch, class: the mean over patches whose ``top`` classes lack the label."""
    found = []
    for image, label in zip(patches, labels, strict=True):
        for logits in image:
            ranked = sorted(range(len(logits)), key=lambda k: -logits[k])
            if label not in ranked[:top]:
                found.append(-sum(p * math.log(p + 1e-5) for p in softmax(logits)))
    return sum(found) / len(found) if found else 0.0


def negprompt_loss(
    z: Tensor, positive: Tensor, negative: Tensor, labels: list[int], separation: str, a: float, b: float
) -> float:
    """Of unit images (N, d), texts (K, d) and negatives (K, M, d), with a scale of 100."""
    classes, m, _ = negative.shape
    image = 0.0
    for x, label in zip(z, labels, strict=True):
        logits = [100 * float(x @ t) for t in positive]
        logits += [100 * float(x @ n) for k in range(classes) for n in negative[k]]
        owner = [*range(classes), *(k for k in range(classes) for _ in range(m))]
        if separation == "paper":
            image += -math.log(softmax(logits)[label]) / len(z)
        else:
            for value, k in zip(logits, owner, strict=True):
                right = value if k == label else -value
                image += F.softplus(torch.tensor(-right, dtype=torch.float64)).item() / len(logits) / len(z)
    apart = sum(1 - float(positive[k] @ n) for k in range(classes) for n in negative[k]) / classes / m
    spread = sum(1 - float(sum(negative[k]).norm() / m) for k in range(classes)) / classes  # type: ignore[union-attr]
    return image - a * apart - b * spread


def patch_features(weights: Mapping[str, Tensor], x: Tensor, layers: int, patch: int) -> Tensor:
    """CLIP's features of one image (3, S, S) and of its patches, (1 + P, dim); towers of one head."""

    def norm(values: Tensor, path: str) -> Tensor:
        scaled = (values - values.mean()) / (values.var(unbiased=False) + 1e-5).sqrt()
        return scaled * weights[f"visual.{path}.weight"] + weights[f"visual.{path}.bias"]

    def linear(values: Tensor, path: str) -> Tensor:
        return weights[f"visual.{path}.weight"] @ values + weights[f"visual.{path}.bias"]

    def mlp(values: Tensor, block: str) -> Tensor:
        hidden = linear(norm(values, f"{block}ln_2"), f"{block}mlp.c_fc")
        return values + linear(hidden * torch.sigmoid(1.702 * hidden), f"{block}mlp.c_proj")

    side = x.shape[1] // patch
    tokens = [weights["visual.class_embedding"]]
    for row in range(side):
        for column in range(side):
            piece = x[:, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch]
            tokens.append((weights["visual.conv1.weight"] * piece).sum((1, 2, 3)))
    positions = weights["visual.positional_embedding"]
    tokens = [norm(token + positions[i], "ln_pre") for i, token in enumerate(tokens)]
    alone: list[Tensor] = []
    for layer in range(layers):
        block = f"transformer.resblocks.{layer}."
        w, b = (weights[f"visual.{block}attn.in_proj_{kind}"].chunk(3) for kind in ("weight", "bias"))
        q, k, v = ([w[i] @ norm(t, f"{block}ln_1") + b[i] for t in tokens] for i in range(3))
        attended = []
        for i in range(len(tokens)):
            shares = torch.softmax(torch.stack([q[i] @ key for key in k]) / len(k[0]) ** 0.5, dim=0)
            attended.append(sum(share * value for share, value in zip(shares, v, strict=True)))
        out = f"{block}attn.out_proj"
        alone = [mlp(t + linear(own, out), block) for t, own in zip(tokens, v, strict=True)]
        tokens = [
            mlp(t + linear(seen, out), block)  # type: ignore[arg-type]
            for t, seen in zip(tokens, attended, strict=True)
        ]
    return torch.stack([norm(t, "ln_post") @ weights["visual.proj"] for t in (tokens[0], *alone[1:])])
