"""The network as an ONNX graph: from raw pixels to what the decision needs."""

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

from ..detection import KNN, NNO, energy, entropy, mls, msp
from ..errors import UserError, first_line
from ..recognition import Recognizer
from .decision import Decision

LARGEST_DIFFERENCE = 1e-4  # between the graph's answers and the network's own
_OF_LOGITS = {"msp": msp, "entropy": entropy, "mls": mls, "energy": energy}
_NEEDS = "export needs the extra 'export': pip install 'gradmix[export]'"


class Graph(nn.Module):
    """Pixels (N, size, size, C) uint8, as Pillow gives them, to ``features`` (N, d); or, where the decision
    needs no index, to ``score`` (N,) float64 and ``nearest`` (N,) int64. Normalising is part of it."""

    mean: Tensor
    std: Tensor

    def __init__(self, recognizer: Recognizer, decision: Decision) -> None:
        super().__init__()
        self.network = recognizer.network
        self.detector = decision.detector
        device = next(self.network.parameters()).device
        self.register_buffer("mean", torch.tensor(recognizer.normalizer.mean, device=device).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(recognizer.normalizer.std, device=device).view(-1, 1, 1))
        if isinstance(self.detector, NNO):
            self.means, self.whiten = (value.to(device) for value in self.detector.learned())

    @property
    def output_names(self) -> list[str]:
        return ["features"] if isinstance(self.detector, KNN) else ["score", "nearest"]

    def forward(self, pixels: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = (pixels.permute(0, 3, 1, 2).float() / 255 - self.mean) / self.std
        z = self.network(x)
        if isinstance(self.detector, KNN):
            features: Tensor = self.network.features(z)
            return features
        if isinstance(self.detector, NNO):
            distance = _mahalanobis(self.network.features(z).double(), self.means, self.whiten)
            return -distance.amin(dim=1), distance.argmin(dim=1)
        logits = self.network.logits(z)
        assert logits is not None
        return _OF_LOGITS[self.detector.name](logits), logits.argmax(dim=1)


def _mahalanobis(z: Tensor, means: Tensor, whiten: Tensor) -> Tensor:
    """‖(z − μ_c) W_c‖ of z (N, d), μ (K, d), W (1 or K, d, d): (N, K). ONNX has no cdist."""
    away = (z[:, None] - means)[:, :, None] @ whiten  # (N, K, 1, d)
    return away.square().sum(dim=(2, 3)).sqrt()


def write_graph(graph: Graph, size: int, channels: int, path: Path) -> None:
    """Write ``graph`` for any number of images, and see to it that onnxruntime answers as torch does."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter asks for it, in many words
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
    try:
        with _quiet(), torch.no_grad():
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
            program.save(path)
            expected = graph(other.to(device))
        session = onnxruntime.InferenceSession(path)
        found = session.run(None, {"pixels": other.numpy()})
    except Exception as error:  # torch's exporter and onnxruntime have dozens of errors of their own
        raise UserError(f"this network ({kind}) cannot be written as ONNX: {_reason(error)}") from error
    for name, ours, theirs in zip(graph.output_names, _tuple(expected), found, strict=True):
        difference = float(np.abs(ours.cpu().numpy() - theirs).max())
        if not difference <= LARGEST_DIFFERENCE * max(1.0, float(ours.abs().max())):
            raise UserError(f"this network ({kind}) answers differently as ONNX: {name} by {difference:.2g}")


def _reason(error: BaseException) -> str:
    """The first line of what went wrong at the root; above it are pages about torch."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)[:200]


def _tuple(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (outputs,) if isinstance(outputs, Tensor) else outputs


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter mentions every package that it might have used, and prints pages where it fails."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
