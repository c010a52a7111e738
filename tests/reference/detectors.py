"""Logit scores and Mahalanobis distances, one image at a time."""

from __future__ import annotations

import math

import numpy as np


def softmax(row: list[float]) -> list[float]:
    weights = [math.exp(x - max(row)) for x in row]
    return [w / sum(weights) for w in weights]


def msp(row: list[float]) -> float:
    return max(softmax(row))


def entropy(row: list[float]) -> float:
    return sum(p * math.log(p) for p in softmax(row) if p > 0)


def mls(row: list[float]) -> float:
    return max(row)


def energy(row: list[float], temperature: float = 1.0) -> float:
    return temperature * math.log(sum(math.exp(x / temperature) for x in row))


def covariance(residuals: np.ndarray, shrinkage: float) -> np.ndarray:
    d = residuals.shape[1]
    total = np.zeros((d, d))
    for r in residuals:
        total += np.outer(r, r)
    total /= len(residuals)
    return (1 - shrinkage) * total + shrinkage * np.trace(total) / d * np.eye(d)


def mahalanobis(
    z: np.ndarray, train: np.ndarray, labels: np.ndarray, shared: bool, shrinkage: float
) -> list[float]:
    """Distance of one feature to the mean of each class 0..max."""
    classes = range(int(labels.max()) + 1)
    means = {c: train[labels == c].mean(axis=0) for c in classes}
    everything = np.stack([x - means[int(y)] for x, y in zip(train, labels, strict=True)])
    distances = []
    for c in classes:
        own = everything if shared else everything[labels == c]
        gap = z - means[c]
        distances.append(math.sqrt(gap @ np.linalg.inv(covariance(own, shrinkage)) @ gap))
    return distances
