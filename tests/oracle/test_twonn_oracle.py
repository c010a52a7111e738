from __future__ import annotations

import numpy as np
import pytest

from gradmix.evaluation.intrinsic import two_nn

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("dimensions", [3, 40])  # the peer searches differently above 25
@pytest.mark.parametrize("discard", [0.1, 0.3])
def test_agrees_with_scikit_dimension(dimensions, discard):
    from skdim.id import TwoNN

    points = np.random.default_rng(dimensions).normal(size=(300, dimensions))
    expected = TwoNN(discard_fraction=discard).fit(points).dimension_
    assert two_nn(points, discard) == pytest.approx(expected, rel=1e-5)
