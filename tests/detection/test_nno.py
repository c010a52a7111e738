from __future__ import annotations

import numpy as np
import pytest
import torch

from gradmix.detection import NNO, Outputs
from gradmix.detection.nno import covariance
from gradmix.errors import UserError
from tests.reference import detectors as reference


def blobs(seed: int = 0, sizes: tuple[int, ...] = (30, 40, 25), d: int = 4) -> Outputs:
    g = torch.Generator().manual_seed(seed)
    parts = [torch.randn(n, d, generator=g) * (1 + c) + 5 * c for c, n in enumerate(sizes)]
    labels = torch.cat([torch.full((n,), c) for c, n in enumerate(sizes)])
    return Outputs(torch.cat(parts), labels)


@pytest.mark.parametrize("which", ["shared", "per_class"])
@pytest.mark.parametrize("shrinkage", ["none", 0.3])
def test_equals_the_loop_with_an_explicit_inverse(which, shrinkage):
    train, test = blobs(), blobs(seed=1, sizes=(3, 3, 3))
    scores = NNO(which, shrinkage).fit(train, 3).score(test)
    x, y = train.features.double().numpy(), train.labels.numpy()
    amount = 0.0 if shrinkage == "none" else shrinkage
    for z, score, label in zip(test.features.double().numpy(), scores.score, scores.label, strict=True):
        distances = reference.mahalanobis(z, x, y, which == "shared", amount)
        assert score.item() == pytest.approx(-min(distances), rel=1e-5)
        assert label.item() == int(np.argmin(distances))


def test_ledoit_wolf_is_sklearns_and_ignores_scale():
    from sklearn.covariance import LedoitWolf

    r = blobs().features.double()
    r = r - r.mean(dim=0)
    expected = LedoitWolf(assume_centered=True).fit(r.numpy()).covariance_
    np.testing.assert_allclose(covariance(r, "ledoit_wolf").numpy(), expected, rtol=1e-8)
    np.testing.assert_allclose(covariance(r * 1e30, "ledoit_wolf").numpy(), expected * 1e60, rtol=1e-8)


def test_distance_is_counted_in_standard_deviations():
    train = Outputs(torch.tensor([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]]), torch.zeros(4).long())
    test = Outputs(torch.tensor([[3.0, 0.0], [0.0, 3.0], [0.0, 0.0]]), torch.full((3,), -1))
    score = NNO(shrinkage="none").fit(train, 1).score(test).score
    torch.testing.assert_close(score, torch.tensor([-1.0, -3.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("which", ["shared", "per_class"])
@pytest.mark.parametrize("shrinkage", ["ledoit_wolf", "none", 0.5])
@pytest.mark.parametrize(
    ("features", "labels"),
    [
        ([[1.0, 2.0]], [0]),  # one image
        ([[0.0, 0.0], [1.0, 0.0]], [0, 1]),  # one image a class
        ([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], [0, 0, 1]),  # a flat class, and class 2 empty
        ([[1.0, 1.0]] * 4, [0, 0, 1, 1]),  # everything equal
        ([[3e38, 0.0], [-3e38, 1.0], [0.0, 0.0]], [0, 0, 1]),
        ([[1e-40, 0.0], [0.0, 1e-40], [0.0, 0.0]], [0, 0, 1]),
    ],
)
def test_finite_whatever_the_training_images(which, shrinkage, features, labels):
    nno = NNO(which, shrinkage).fit(Outputs(torch.tensor(features), torch.tensor(labels)), 3)
    test = torch.tensor([[0.0, 0.0], [1.0, 5.0], [3e38, -3e38]])
    scores = nno.score(Outputs(test, torch.full((3,), -1)))
    assert torch.isfinite(scores.score).all()
    assert set(scores.label.tolist()) <= set(labels)  # a class without images never wins


def test_leaving_the_training_plane_is_far():
    train = Outputs(torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]), torch.zeros(3).long())
    test = Outputs(torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, 1.0]]), torch.full((3,), -1))
    score = NNO(shrinkage="none").fit(train, 1).score(test).score
    assert score[2] < 100 * score[1] < score[0]


def test_mistakes_are_named():
    with pytest.raises(UserError, match="did you mean 'ledoit_wolf'"):
        NNO(shrinkage="ledoitwolf")
    with pytest.raises(UserError, match=r"\[0, 1\], not 2"):
        NNO(shrinkage=2.0)
    with pytest.raises(UserError, match="no covariance 'common'"):
        NNO("common")
    with pytest.raises(UserError, match="call fit first"):
        NNO().score(blobs())
    with pytest.raises(UserError, match="4 dimensions, the training features 2"):
        NNO().fit(blobs(d=2), 3).score(blobs(d=4))
