"""Post-hoc scores next to scikit-learn's and scipy's pieces of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import entropy
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler, normalize

from gradmix.detection import make_detector
from gradmix.detection.temperature import fit_temperature
from tests.detection.post_hoc_toy import CLASSES, as_data, toy

pytestmark = pytest.mark.oracle
TRAIN, TEST = toy(400, 3), toy(60, 4, spread=2.0)
A, B = as_data(TRAIN), as_data(TEST)


def score(name: str, **settings: object) -> list[float]:
    found: list[float] = make_detector(name, **settings).fit(TRAIN, CLASSES).score(TEST).score.tolist()
    return found


def test_nearest_neighbours() -> None:
    index = NearestNeighbors(n_neighbors=50, algorithm="brute").fit(normalize(A.h))
    expected = -index.kneighbors(normalize(B.h))[0][:, -1]
    assert score("knn_distance") == pytest.approx(expected, abs=1e-5)


def test_relative_mahalanobis() -> None:
    means = np.stack([A.h[A.y == c].mean(axis=0) for c in range(CLASSES)])
    within = EmpiricalCovariance(assume_centered=True).fit(A.h - means[A.y])
    overall = EmpiricalCovariance().fit(A.h).mahalanobis(B.h)
    own = np.stack([within.mahalanobis(B.h - mean) for mean in means], axis=1)
    assert score("rmds") == pytest.approx(overall - own.min(axis=1), rel=1e-7, abs=1e-7)


def test_kl_matching() -> None:
    p, predicted = softmax(A.f, axis=1), A.f.argmax(axis=1)
    typical = np.stack([p[predicted == c].mean(axis=0) for c in range(CLASSES)])
    expected = [-min(entropy(q, d) for d in typical) for q in softmax(B.f, axis=1)]
    assert score("klm") == pytest.approx(expected, abs=1e-9)


def test_temperature() -> None:
    def nll(beta: float) -> float:
        return -float(log_softmax(B.f * beta, axis=1)[np.arange(len(B.y)), B.y].mean())

    best = minimize_scalar(nll, bounds=(0.01, 100), method="bounded", options={"xatol": 1e-9})
    found = fit_temperature(torch.from_numpy(B.f), torch.from_numpy(B.y))
    assert 1 / found == pytest.approx(best.x, rel=1e-5)


def test_neco() -> None:
    scaler = StandardScaler().fit(A.h)
    pca = PCA(0.9).fit(scaler.transform(A.h))
    s = scaler.transform(B.h)
    share = np.linalg.norm(pca.transform(s), axis=1) / np.linalg.norm(s, axis=1)
    assert score("neco") == pytest.approx(share * B.f.max(axis=1), rel=1e-9)


def test_vim() -> None:
    origin = -np.linalg.pinv(A.w) @ A.b
    covariance = EmpiricalCovariance(assume_centered=True).fit(A.h - origin).covariance_
    values, axes = np.linalg.eig(covariance)
    minor = axes[:, np.argsort(values * -1)[A.h.shape[1] // 2 :]]
    residual = [np.linalg.norm((h - origin) @ minor, axis=-1) for h in (A.h, B.h)]
    alpha = A.f.max(axis=1).mean() / residual[0].mean()
    assert score("vim") == pytest.approx(logsumexp(B.f, axis=1) - alpha * residual[1], rel=1e-8, abs=1e-8)
    assert score("residual") == pytest.approx(-residual[1], rel=1e-8)


def test_relation_and_nnguide() -> None:
    cosines = cosine_similarity(B.h, A.h)
    agree = softmax(B.f, axis=1) @ softmax(A.f, axis=1).T
    assert score("relation") == pytest.approx((np.maximum(0, cosines) ** 4 * agree).sum(axis=1), rel=1e-5)
    weighted = np.sort(cosines * logsumexp(A.f, axis=1), axis=1)[:, -10:].mean(axis=1)
    assert score("nnguide") == pytest.approx(logsumexp(B.f, axis=1) * weighted, rel=1e-5)
