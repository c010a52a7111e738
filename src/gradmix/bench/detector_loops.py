"""The scores of some detectors as one would write them first: image by image, in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..detection import Outputs

Rows = NDArray[Any]


def _arrays(outputs: Outputs) -> tuple[Rows, Rows, Rows, Rows]:
    """Return h, logits, W and b as float64."""
    assert outputs.penultimate is not None
    assert outputs.logits is not None
    assert outputs.head is not None
    parts = (outputs.penultimate, outputs.logits, outputs.head.weight, outputs.head.bias)
    h, f, w, b = (np.asarray(part, dtype=np.float64) for part in parts)
    return h, f, w, b


def _softmax(f: Rows) -> Rows:
    e = np.exp(f - f.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _energy(f: Rows) -> float:
    return float(f.max() + np.log(np.exp(f - f.max()).sum()))


def _unit(h: Rows) -> Rows:
    lengths: Rows = np.linalg.norm(h, axis=-1, keepdims=True)
    return h / np.maximum(lengths, 1e-12)


def knn_distance(train: Outputs, test: Outputs, k: int = 50) -> Rows:
    """Return −‖u − u₍ₖ₎‖."""
    bank = _unit(_arrays(train)[0])
    return np.array([-np.sort(np.linalg.norm(bank - u, axis=1))[k - 1] for u in _unit(_arrays(test)[0])])


def relation(train: Outputs, test: Outputs, power: int = 4) -> Rows:
    """Return Σᵢ max(0, cos)^power · (p·pᵢ)."""
    h, f, _, _ = _arrays(train)
    bank, p = _unit(h), _softmax(f)
    of_h, of_f, _, _ = _arrays(test)
    queries = zip(_unit(of_h), _softmax(of_f), strict=True)
    return np.array([(np.maximum(0, bank @ u) ** power * (p @ q)).sum() for u, q in queries])


def fdbd(train: Outputs, test: Outputs) -> Rows:
    """Return the mean of |f_ŷ − f_c| / ‖w_ŷ − w_c‖ over ‖h − mean h‖."""
    mean = _arrays(train)[0].mean(axis=0)
    scores = []
    h, f, w, _ = _arrays(test)
    for hi, fi in zip(h, f, strict=True):
        best = int(fi.argmax())
        others = [c for c in range(len(fi)) if c != best]
        distances = [abs(fi[best] - fi[c]) / np.linalg.norm(w[best] - w[c]) for c in others]
        scores.append(np.mean(distances) / np.linalg.norm(hi - mean))
    return np.array(scores)


def react(train: Outputs, test: Outputs, clip: float = 0.9) -> Rows:
    """Return the energy of W min(h, t) + b."""
    limit = np.quantile(_arrays(train)[0], clip)
    h, _, w, b = _arrays(test)
    return np.array([_energy(w @ np.minimum(row, limit) + b) for row in h])


def ash(train: Outputs, test: Outputs) -> Rows:
    """Return the energy of the pruned and enlarged activations."""
    h, _, w, b = _arrays(test)
    scores = []
    for row in h:
        keep = len(row) - round((0.65 if len(row) < 1024 else 0.9) * len(row))
        kept = np.where(row >= np.sort(row)[-keep], row, 0.0)
        scores.append(_energy(w @ (kept * np.exp(row.sum() / kept.sum())) + b))
    return np.array(scores)


def scale(train: Outputs, test: Outputs, prune: float = 0.85) -> Rows:
    """Return the energy of the enlarged activations."""
    h, _, w, b = _arrays(test)
    scores = []
    for row in h:
        kept = np.sort(row)[-(len(row) - round(prune * len(row))) :]
        scores.append(_energy(w @ (row * np.exp(row.sum() / kept.sum())) + b))
    return np.array(scores)


def vim(train: Outputs, test: Outputs) -> Rows:
    """Return energy − α‖R(h − o)‖."""
    h, f, w, b = _arrays(train)
    origin = -np.linalg.pinv(w) @ b
    dim = 512 if h.shape[1] >= 1024 else h.shape[1] // 2
    minor = np.linalg.eigh((h - origin).T @ (h - origin))[1][:, : h.shape[1] - dim]
    alpha = f.max(axis=1).mean() / np.linalg.norm((h - origin) @ minor, axis=1).mean()
    of_h, of_f, _, _ = _arrays(test)
    rows = zip(of_h, of_f, strict=True)
    return np.array([_energy(fi) - alpha * np.linalg.norm((hi - origin) @ minor) for hi, fi in rows])


def rmds(train: Outputs, test: Outputs) -> Rows:
    """Return −min_c (MD_c − MD₀)."""
    h, labels = _arrays(train)[0], np.asarray(train.labels)
    classes = range(int(labels.max()) + 1)
    means = np.stack([h[labels == c].mean(axis=0) for c in classes])
    away, around = h - means[labels], h - h.mean(axis=0)
    inverse = np.linalg.inv(away.T @ away / len(h))
    inverse_all = np.linalg.inv(around.T @ around / len(h))
    scores = []
    for row in _arrays(test)[0]:
        of_all = (row - h.mean(axis=0)) @ inverse_all @ (row - h.mean(axis=0))
        scores.append(-min((row - m) @ inverse @ (row - m) for m in means) + of_all)
    return np.array(scores)


def klm(train: Outputs, test: Outputs) -> Rows:
    """Return −min_c KL(p ‖ mean p of training images predicted c)."""
    f = _arrays(train)[1]
    p, predicted = _softmax(f), f.argmax(axis=1)
    typical = [p[predicted == c].mean(axis=0) for c in np.unique(predicted)]
    scores = []
    for q in _softmax(_arrays(test)[1]):
        scores.append(-min(float((q * np.log(q / d)).sum()) for d in typical))
    return np.array(scores)


LOOPS: dict[str, Callable[[Outputs, Outputs], Rows]] = {
    "knn_distance": knn_distance,
    "relation": relation,
    "fdbd": fdbd,
    "react": react,
    "ash": ash,
    "scale": scale,
    "vim": vim,
    "rmds": rmds,
    "klm": klm,
}
