"""A bias for classes of few images, so that they can win at all.

d_c sums the k largest cosines to images of class c. A class of five images, of a kind that the network was
never trained for, has five chances of a large cosine where a trained one has thousands: on CIFAR10 0.0 % of
the test images of enrolled classes were recognized (benchmarks/enroll.py --no-bias). So the similarity to an
enrolled class c is d_c + b_c, with b_c ≥ 0 as large as two bounds allow:

1. At most 2 % of the known images of the trained classes may go over to c: b_c is the conformal bound, the
   ⌊0.02(n+1)⌋-th smallest of n margins max_trained d − d_c of held-out images. As for the threshold, the
   promise holds on average over draws of these; from training images nothing follows. Of fewer than 49
   the rank is 1, and the promise 1/(n+1) (:func:`lost_share`).
2. A typical image of c, left out of its own neighbours, may come as near to c as a typical image of a
   trained class comes to its own, and no nearer (medians). One image alone has none left out, and no bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..detection import KNN, Outputs
from ..detection.bank import unit_rows
from ..detection.threshold import conformal_rank

MAX_LOST_SHARE = 0.02
_ROUNDING, _ITSELF = 1e-6, 1 - 1e-5  # of a cosine; that of two runs of the network over one image
_MOST_LEFT_OUT = 500  # images per class, where the training images have to do; enough for a quantile


def compute_class_bias(
    knn: KNN, held_out: Outputs | None, enrolled: Sequence[int], share: float = MAX_LOST_SHARE
) -> tuple[float, ...]:
    """Return b_c of every class, zero for trained ones; none where no class is enrolled, or all are."""
    if not enrolled:
        return ()
    index = knn.state()
    classes = int(index["num_classes"])
    trained = [c for c in range(classes) if c not in enrolled]
    if not trained:
        return ()
    d, truth = known_similarity(knn, index, held_out, trained)
    if not len(d):
        return ()
    own_typical = d.gather(1, truth[:, None]).median()
    nearest = d[:, trained].amax(dim=1)
    bias = [0.0] * classes
    for label in enrolled:
        margin = nearest - d[:, label]
        bound = torch.kthvalue(margin, max(1, conformal_rank(len(margin), share))).values
        if int((index["labels"] == label).sum()) > 1:
            typical = left_out_similarity(knn, index, label)[:, label].median()
            bound = torch.minimum(bound, own_typical - typical)
        bias[label] = max(0.0, float(bound))
    return tuple(bias)


def lost_share(known: int, share: float = MAX_LOST_SHARE) -> float:
    """Return the promise about ``known`` held-out images: at most so many of others go over, on average.

    With fewer than 1/share − 1 the bound is the smallest margin, below which one in known + 1 lies. A bias of
    0 would keep the smaller promise, and no enrolled class would ever be recognized.

    >>> lost_share(49), round(lost_share(10), 3)
    (0.02, 0.091)
    """
    return max(share, 1 / (known + 1))


def find_reach(exemplars: Tensor, label: int, index: dict[str, Tensor], held_out: Outputs | None) -> float:
    """Return the cosine from which on ``exemplars`` (E, d), unit vectors, of class ``label`` count.

    At most 2 % of the known images of other classes come so near to one of them, in the sense of the class
    bias: of those held out and, which can only raise it, of those in the index. It is never so large that an
    exemplar does not reach itself.
    """
    others = [index["features"][index["labels"] != label]]
    if held_out is not None:
        others.append(unit_rows(held_out.features[held_out.labels != label]))
    found = [-1.0]
    for features in others:
        cosine = (features @ exemplars.T).amax(dim=1)
        rank = max(1, conformal_rank(len(cosine), MAX_LOST_SHARE))
        if len(cosine):
            found.append(float(cosine.topk(rank).values[-1]) + _ROUNDING)
    return min(max(found), _ITSELF)


def known_similarity(
    knn: KNN, index: dict[str, Tensor], held_out: Outputs | None, trained: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return d (n, C) and the true class (n,) of images of trained classes: held out, else left out."""
    if held_out is not None:
        kept = torch.isin(held_out.labels, torch.tensor(list(trained)))
        return knn.class_similarity(held_out.features[kept]).double(), held_out.labels[kept]
    parts = [left_out_similarity(knn, index, c, _MOST_LEFT_OUT) for c in trained]
    parts = [part if bool(part.isfinite().any()) else part[:0] for part in parts]  # one image: none left out
    truth = [torch.full((len(part),), c) for part, c in zip(parts, trained, strict=True)]
    return torch.cat(parts), torch.cat(truth)


def left_out_similarity(knn: KNN, index: dict[str, Tensor], label: int, most: int | None = None) -> Tensor:
    """Return d (m, C) of the (first ``most``) images of a class, each left out of its own neighbours.

    Leaving an image out changes its similarity to its own class only: d_own is k times the mean of the k
    largest cosines to the others, and -inf if there are none; or k times the largest cosine to an exemplar
    among the others that reaches it, if that is more.
    """
    inside = index["labels"] == label
    of_class = index["features"][inside]
    some = of_class[:most]
    d = knn.class_similarity(some).double()
    cosine = (some @ of_class.T).clamp(-1.0, 1.0)
    cosine.fill_diagonal_(-torch.inf)
    others = min(knn.k, len(of_class) - 1)
    d[:, label] = cosine.topk(others, dim=1).values.mean(dim=1).double() * knn.k if others else -torch.inf
    if "exemplars" in index:
        reach = torch.full((len(inside),), torch.inf).index_put(
            (index["exemplars"],), index["exemplar_reach"]
        )
        best = cosine.masked_fill(cosine < reach[inside], -torch.inf).amax(dim=1)
        d[:, label] = torch.maximum(d[:, label], best.double() * knn.k)
    return d
