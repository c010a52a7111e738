"""The linear probe against scikit-learn's logistic regression on its handwritten digits."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from gradmix.evaluation import linear_probe
from gradmix.evaluation.linear_probe import fit_logistic

pytestmark = pytest.mark.oracle


def digits(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """900 to train on, 897 to test, 64 pixels of which some are always 0."""
    x, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    x = x.to(dtype)
    return x[:900], y[:900], x[900:], y[900:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("c", [0.01, 1.0])
def test_the_fast_probe_is_logistic_regression(dtype: torch.dtype, c: float) -> None:
    train_x, train_y, test_x, test_y = digits(dtype)
    ours = fit_logistic(train_x, train_y, 10, c)
    scaler = StandardScaler().fit(train_x.double().numpy())
    theirs = LogisticRegression(C=c, tol=1e-10, max_iter=10_000)
    theirs.fit(scaler.transform(train_x.double().numpy()), train_y.numpy())
    varying = train_x.std(0) > 0  # a pixel that is always 0 has no weight to compare

    wanted = theirs.predict_proba(scaler.transform(test_x.double().numpy()))
    seen = torch.where(varying, test_x, ours.mean)
    weights = torch.as_tensor(theirs.coef_, dtype=dtype)
    torch.testing.assert_close(ours.weight[:, varying], weights[:, varying], rtol=0, atol=1e-3)
    torch.testing.assert_close(ours(seen).softmax(1), torch.as_tensor(wanted, dtype=dtype), rtol=0, atol=1e-3)
    hits = (ours(test_x).argmax(1) == test_y).double().mean()
    assert float(hits) == pytest.approx((wanted.argmax(1) == test_y.numpy()).mean(), abs=0.005)


@pytest.mark.parametrize("recipe", ["fast", "standard"])
def test_accuracy(recipe: str) -> None:
    train_x, train_y, test_x, test_y = digits(torch.float32)
    result = linear_probe(train_x, train_y, test_x, test_y, recipe)
    scaler = StandardScaler().fit(train_x.numpy())
    theirs = LogisticRegression(max_iter=10_000).fit(scaler.transform(train_x.numpy()), train_y.numpy())
    wanted = theirs.score(scaler.transform(test_x.numpy()), test_y.numpy())
    assert result.top1 == pytest.approx(wanted, abs=0.002 if recipe == "fast" else 0.03)
    assert result.top5 > 0.98
