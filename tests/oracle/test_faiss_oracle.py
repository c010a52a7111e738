from __future__ import annotations

import faiss
import pytest
import torch

from gradmix.detection import KNN, Outputs

pytestmark = pytest.mark.oracle


def test_neighbours_and_class_sums_agree_with_a_flat_index():
    g = torch.Generator().manual_seed(0)
    train, labels = torch.randn(4000, 16, generator=g), torch.randint(0, 9, (4000,), generator=g)
    test = torch.randn(50, 16, generator=g)
    knn = KNN(3).fit(Outputs(train, labels), 9)
    unit, rows = (torch.nn.functional.normalize(z, dim=1).numpy() for z in (train, test))
    index = faiss.IndexFlatIP(16)
    index.add(unit)
    similarity, nearest = index.search(rows, 7)
    found = knn.neighbours(test, 7)
    torch.testing.assert_close(found.similarity, torch.from_numpy(similarity))
    assert torch.equal(found.index, torch.from_numpy(nearest))
    for c in range(9):
        one = faiss.IndexFlatIP(16)
        one.add(unit[(labels == c).numpy()])
        expected = torch.from_numpy(one.search(rows, 3)[0]).sum(dim=1)
        torch.testing.assert_close(knn.class_similarity(test)[:, c], expected)
