"""Write the network as an ONNX graph, from raw pixels to what the decision needs."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..data import UNKNOWN
from ..detection import KNN, Decision, Outputs
from ..detection.threshold import conformal_rank
from ..errors import UserError, first_line
from ..recognition import Recognizer
from ..recognition.features import head_weights

LARGEST_DIFFERENCE = 1e-4  # between onnxruntime's outputs and torch's
_NEEDS = "export needs the extra 'export': pip install 'gradmix[export]'"


class Graph(nn.Module):
    """Pixels (N, size, size, C) uint8, as Pillow gives them, to the answer: ``score`` (N,) float64,
    ``nearest`` (N,) int64, ``label`` (N,) int64, which is ``nearest`` or -1 for unknown, and ``p_value`` (N,)
    float64, NaN where the model has no known scores.

    All is inside: pixels are normalized, neighbours searched (the index is part of the graph), and the score
    compared with the threshold.
    """

    mean: Tensor
    std: Tensor
    thresholds: Tensor

    def __init__(self, recognizer: Recognizer, decision: Decision) -> None:
        super().__init__()
        self.network = recognizer.network
        self.detector = decision.detector
        self.head = head_weights(recognizer.network)
        self.search = None
        if isinstance(decision.detector, KNN):
            self.search = Search(decision.detector, len(recognizer.class_names), decision.class_bias)
        device = next(self.network.parameters()).device
        self.register_buffer("mean", torch.tensor(recognizer.normalizer.mean, device=device).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(recognizer.normalizer.std, device=device).view(-1, 1, 1))
        thresholds = decision.threshold.of(torch.arange(len(recognizer.class_names)))
        self.register_buffer("thresholds", thresholds.to(device))
        self.rank = PValues(decision, len(recognizer.class_names))
        self.to(device)

    @property
    def output_names(self) -> list[str]:
        return ["score", "nearest", "label", "p_value"]

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        outputs = self.outputs(pixels)
        if self.search is None:
            score, nearest = self.detector.graph(outputs)
        else:
            score, nearest = self.search(outputs.features)
        known = score >= self.thresholds[nearest]
        return score, nearest, torch.where(known, nearest, UNKNOWN), self.rank(score, nearest)

    def outputs(self, pixels: Tensor) -> Outputs:
        """Return what the network says about the images, with the label of all of them unknown."""
        x = (pixels.permute(0, 3, 1, 2).float() / 255 - self.mean) / self.std
        answer = self.network.answer(x)
        labels = torch.full((pixels.shape[0],), UNKNOWN, device=pixels.device)
        parts = (answer.logits, answer.extra, answer.penultimate, self.head)
        return Outputs(answer.features, labels, *parts)


class Search(nn.Module):
    """Features (N, d) to score (N,) float64 and nearest class (N,), as :class:`KNN` has them, in one graph.

    ``places`` (C, m) are the rows of ``features`` of each class, filled up with a row of -1 (``filler``),
    whose cosine is taken for less than any.
    """

    features: Tensor
    places: Tensor
    filler: Tensor
    reach: Tensor
    count: Tensor
    bias: Tensor

    def __init__(self, knn: KNN, classes: int, class_bias: tuple[float, ...]) -> None:
        super().__init__()
        self.knn = knn
        state = knn.state()
        labels = state["labels"].cpu()
        rows = [(labels == c).nonzero()[:, 0] for c in range(classes)]
        most = max(max(map(len, rows)), knn.k)
        places = torch.stack([torch.cat([some, some.new_full((most - len(some),), -1)]) for some in rows])
        reach = torch.full((len(labels),), 2.0)  # of an image that is no exemplar: it reaches none
        if "exemplars" in state:
            reach[state["exemplars"]] = state["exemplar_reach"].cpu()
        count = torch.tensor([len(some) for some in rows])
        self.register_buffer("features", state["features"].cpu())
        self.register_buffer("places", places.clamp(min=0))
        self.register_buffer("filler", places < 0)
        self.register_buffer("reach", torch.where(self.filler, 2.0, reach[self.places]))
        self.register_buffer("count", count.clamp(max=knn.k).double())
        self.register_buffer("bias", torch.tensor(class_bias or (0.0,) * classes, dtype=torch.float64))
        self.has_exemplars = "exemplars" in state

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        unit = features / torch.linalg.vector_norm(features, dim=1, keepdim=True).clamp_min(1e-12)
        cosine = (unit @ self.features.T).clamp(-1.0, 1.0)[:, self.places]  # (N, C, m)
        nearest = torch.where(self.filler, -2.0, cosine).topk(self.knn.k, dim=2).values.double()
        mean = torch.where(nearest < -1.5, 0.0, nearest).sum(dim=2) / self.count
        if self.has_exemplars:
            best = torch.where(cosine < self.reach, -1.0, cosine).amax(dim=2)
            mean = torch.maximum(mean, best.double())
        d = mean * self.knn.k + self.bias
        return self.knn.score_similarities(d), d.argmax(dim=1)


class PValues(nn.Module):
    """Scores (N,) and nearest classes (N,) to p (N,), as :meth:`KnownScores.p_values` has them, in one graph.

    ``pool`` (C, n) says which of the n known ``scores`` an image taken for a class is compared with; ``own``
    (C, m) are the scores of the images of enrolled classes, filled up with infinity.
    """

    scores: Tensor
    pool: Tensor
    own: Tensor
    own_count: Tensor

    def __init__(self, decision: Decision, classes: int) -> None:
        super().__init__()
        known, threshold = decision.known_scores, decision.threshold
        self.has_any = known is not None
        scores = torch.empty(0, dtype=torch.float64) if known is None else known.score
        pool = torch.ones(classes, len(scores), dtype=torch.bool)
        enrolled = {} if known is None else known.enrolled
        most = max([1, *(len(one.score) for one in enrolled.values())])
        own = torch.full((classes, most), torch.inf, dtype=torch.float64)
        own_count = torch.zeros(classes, dtype=torch.float64)
        for c in range(classes if known is not None and threshold.per_class else 0):
            mine = known.label == c  # type: ignore[union-attr]
            if conformal_rank(int(mine.sum()), threshold.false_reject):
                pool[c] = mine
        for c, one in enrolled.items():
            own[c, : len(one.score)] = one.score
            own_count[c] = len(one.score)
        # One that counts for nobody: a graph may not have an empty tensor.
        nobody = torch.zeros(classes, 1, dtype=torch.bool)
        self.register_buffer("scores", torch.cat([scores, scores.new_full((1,), torch.inf)]))
        self.register_buffer("pool", torch.cat([pool, nobody], dim=1))
        self.register_buffer("own", own)
        self.register_buffer("own_count", own_count)

    def forward(self, score: Tensor, nearest: Tensor) -> Tensor:
        if not self.has_any:
            return score * torch.nan
        pool = self.pool[nearest]
        least = 1 + ((self.scores <= score[:, None]) & pool).double().sum(dim=1)
        p = least / (pool.double().sum(dim=1) + 1)
        count = self.own_count[nearest]
        below = (self.own[nearest] <= score[:, None]).double().sum(dim=1)
        p_own = (1 + below) / (count + 1)
        return torch.where((count > 0) & (below > 0), torch.maximum(p, p_own), p)


def write_graph(graph: Graph, size: int, channels: int, path: Path, about: str = "") -> None:
    """Write ``graph`` for any number of images, and check that onnxruntime computes the same as torch.

    ``about``: text that the file carries under the name "gradmix".
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError:
        raise UserError(_NEEDS) from None
    graph.eval()
    device = graph.mean.device
    generator = torch.Generator().manual_seed(0)
    example, other = (
        torch.randint(0, 256, (n, size, size, channels), generator=generator).to(torch.uint8)
        for n in (2, 5)  # 1 would be taken for a constant
    )
    kind = type(graph.network.encoder).__name__
    with torch.no_grad():
        graph(example.to(device))  # a score that has no graph says so here, before the exporter's seconds
    try:
        with silence_exporter(), torch.no_grad():
            program = torch.onnx.export(
                graph,
                (example.to(device),),
                input_names=["pixels"],
                output_names=graph.output_names,
                dynamic_shapes=({0: torch.export.Dim("images")},),
                dynamo=True,
                verbose=False,
            )
            assert program is not None
            program.model.metadata_props["gradmix"] = about
            program.save(path)
            expected = graph(other.to(device))
        session = onnxruntime.InferenceSession(path)
        found = session.run(None, {"pixels": other.numpy()})
    except Exception as error:  # torch's exporter and onnxruntime have dozens of errors of their own
        raise UserError(
            f"this network ({kind}) cannot be written as ONNX: {_describe_error(error)}"
        ) from error
    compared = list(zip(graph.output_names, expected, found, strict=True))[:2]  # the others follow from both
    for name, torch_output, onnx_output in compared:
        difference = float(np.abs(torch_output.cpu().numpy() - onnx_output).max())
        if not difference <= LARGEST_DIFFERENCE * max(1.0, float(torch_output.abs().max())):
            raise UserError(f"this network ({kind}) answers differently as ONNX: {name} by {difference:.2g}")


def _describe_error(error: BaseException) -> str:
    """Return the first line of the root cause; the errors above it are about torch's exporter."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)[:200]


@contextmanager
def silence_exporter() -> Iterator[None]:
    """Silence logs, warnings and prints of torch's exporter, which are many."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
