from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors

from gradmix.detection import KNN, NNO, Outputs, knn_similarity

pytestmark = pytest.mark.oracle


def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randn(400, 16, generator=g), torch.arange(400) % 5, torch.randn(60, 16, generator=g)


def test_similarities_agree_with_scikit_learns_neighbours():
    train, labels, test = problem()
    found = knn_similarity(test, train, labels, 5, k=3)
    for c in range(5):
        peer = NearestNeighbors(n_neighbors=3, metric="cosine").fit(train[labels == c].numpy())
        distance, _ = peer.kneighbors(test.numpy())
        np.testing.assert_allclose(found[:, c].numpy(), (1 - distance).sum(axis=1), atol=1e-5)


def test_neighbours_agree_with_scikit_learns():
    train, labels, test = problem()
    found = KNN().fit(Outputs(train, labels), 5).neighbours(test, top=7)
    distance, index = (
        NearestNeighbors(n_neighbors=7, metric="cosine").fit(train.numpy()).kneighbors(test.numpy())
    )
    np.testing.assert_array_equal(found.index.numpy(), index)
    np.testing.assert_allclose(found.similarity.numpy(), 1 - distance, atol=1e-5)


def test_mahalanobis_agrees_with_scikit_learns():
    train, _, test = problem()
    one = Outputs(train, torch.zeros(len(train), dtype=torch.int64))
    found = NNO(shrinkage="none").fit(one, 1).score(Outputs(test, torch.full((len(test),), -1)))
    peer = EmpiricalCovariance().fit(train.double().numpy())
    np.testing.assert_allclose(
        found.score.numpy(), -np.sqrt(peer.mahalanobis(test.double().numpy())), rtol=1e-5
    )
