"""The nearest-neighbour score against faiss and against the loop one would write first."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..detection import KNN, Outputs
from ..detection.approximate import CANDIDATES, ApproximateIndex, import_faiss
from ..errors import UserError
from ..training.seeds import generator_for
from .rounds import Timing, take_turns

OURS, FLAT, LOOP, APPROXIMATE = "gradmix", "faiss flat", "numpy loop", "gradmix, ivf"
_LOOP_QUERIES = 2  # the loop takes about a second for each at a million features
_BLAS_FROM = 20  # queries from which faiss multiplies matrices: some versions set this out of reach


@dataclass(frozen=True)
class KNNBench:
    """Timings of one search for all ``queries`` (the loop's is scaled up), and what the search is worth.

    ``peak_bytes`` is the most that searching took beside the features themselves; ``recall`` and
    ``same_label`` are of the approximate index, if it was asked for.
    """

    queries: int
    timings: list[Timing]
    peak_bytes: int
    recall: float | None = None
    same_label: float | None = None


def bench_knn(
    features: int, classes: int, dim: int, k: int, queries: int, rounds: int, approximate: bool = False
) -> KNNBench:
    """Time the search in clustered random unit features; contestants answer the same queries, in turn.

    Ours answers more than faiss does: the k nearest of every class, not the k nearest of all.
    """
    for name, value in {
        "features": features,
        "classes": classes,
        "dim": dim,
        "k": k,
        "queries": queries,
    }.items():
        if value < 1:
            raise UserError(f"--{name} must be at least 1, not {value}")
    train, test = _make_problem(features, classes, dim, queries)
    knn = KNN(k=k).fit(train, classes)
    before = _get_peak_memory()
    knn.score(test)
    peak = _get_peak_memory() - before
    contestants: dict[str, Callable[[], object]] = {OURS: lambda: knn.score(test)}
    contestants[FLAT] = _make_faiss_search(train, test, k)
    arrays = train.features.numpy(), train.labels.numpy(), test.features.numpy()[:_LOOP_QUERIES]
    contestants[LOOP] = lambda: class_similarity_loop(*arrays, classes, k)
    recall = same_label = None
    if approximate:
        quick = KNN(k=k, index="ivf").fit(train, classes)
        contestants[APPROXIMATE] = lambda: quick.score(test)
        recall = _measure_recall(knn, quick, test, k)
        same_label = float((quick.score(test).label == knn.score(test).label).float().mean())
    timings = [_scale_to_all_queries(timing, queries) for timing in take_turns(contestants, OURS, rounds)]
    return KNNBench(queries, timings, peak, recall, same_label)


def class_similarity_loop(
    train: NDArray[np.float32],
    labels: NDArray[np.int64],
    test: NDArray[np.float32],
    classes: int,
    k: int,
) -> NDArray[np.float32]:
    """Compute d_c of unit features, query by query and class by class: (N, C).

    >>> axes = np.eye(2, dtype=np.float32)
    >>> class_similarity_loop(axes, np.array([0, 1]), axes, classes=2, k=1)
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    d = np.empty((len(test), classes), np.float32)
    for i, query in enumerate(test):
        similarity = train @ query
        for c in range(classes):
            d[i, c] = np.sort(similarity[labels == c])[-k:].sum()
    return d


def _make_problem(features: int, classes: int, dim: int, queries: int) -> tuple[Outputs, Outputs]:
    generator = generator_for(0, "bench knn")
    centres = torch.randn(classes, dim, generator=generator)
    labels = torch.randint(0, classes, (features,), generator=generator)
    train = torch.randn(features, dim, generator=generator).add_(centres[labels])
    like = torch.randint(0, classes, (queries,), generator=generator)
    test = torch.randn(queries, dim, generator=generator).add_(centres[like])
    for z in (train, test):
        z.div_(torch.linalg.vector_norm(z, dim=1, keepdim=True))
    return Outputs(train, labels), Outputs(test, torch.full((queries,), -1))


def _make_faiss_search(train: Outputs, test: Outputs, k: int) -> Callable[[], object]:
    faiss = import_faiss()
    faiss.omp_set_num_threads(torch.get_num_threads())
    faiss.cvar.distance_compute_blas_threshold = _BLAS_FROM
    index = faiss.IndexFlatIP(train.features.shape[1])
    index.add(train.features.numpy())
    rows = test.features.numpy()
    return lambda: index.search(rows, k)


def _measure_recall(exact: KNN, quick: KNN, test: Outputs, k: int) -> float:
    """Return the share of the k nearest images (the score's main term) that the index finds."""
    index = quick._require_search()
    assert isinstance(index, ApproximateIndex)
    true = exact.neighbours(test.features, k).index
    found = index.nearest(test.features, CANDIDATES)[0]
    return float((true[:, :, None] == found[:, None, :]).any(dim=2).float().mean())


def _scale_to_all_queries(timing: Timing, queries: int) -> Timing:
    if timing.name != LOOP:
        return timing
    times = queries / min(queries, _LOOP_QUERIES)
    return Timing(LOOP, timing.seconds * times, timing.ratio * times, timing.low * times, timing.high * times)


def _get_peak_memory() -> int:
    """Return the most memory that this process has had, in bytes; 0 on Windows, which does not tell."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
