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
from ..errors import UserError, first_line
from ..recognition import Recognizer
from ..recognition.features import head_weights

LARGEST_DIFFERENCE = 1e-4  # between onnxruntime's outputs and torch's
_NEEDS = "export needs the extra 'export': pip install 'gradmix[export]'"


class Graph(nn.Module):
    """Pixels (N, size, size, C) uint8, as Pillow gives them, to ``features`` (N, d); or, where the decision
    needs no index, to ``score`` (N,) float64 and ``nearest`` (N,) int64. It normalizes the pixels itself."""

    mean: Tensor
    std: Tensor

    def __init__(self, recognizer: Recognizer, decision: Decision) -> None:
        super().__init__()
        self.network = recognizer.network
        self.detector = decision.detector
        self.head = head_weights(recognizer.network)
        device = next(self.network.parameters()).device
        self.register_buffer("mean", torch.tensor(recognizer.normalizer.mean, device=device).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(recognizer.normalizer.std, device=device).view(-1, 1, 1))

    @property
    def output_names(self) -> list[str]:
        return ["features"] if isinstance(self.detector, KNN) else ["score", "nearest"]

    def forward(self, pixels: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        outputs = self.outputs(pixels)
        return outputs.features if isinstance(self.detector, KNN) else self.detector.graph(outputs)

    def outputs(self, pixels: Tensor) -> Outputs:
        """Return what the network says about the images, with the label of all of them unknown."""
        x = (pixels.permute(0, 3, 1, 2).float() / 255 - self.mean) / self.std
        answer = self.network.answer(x)
        labels = torch.full((pixels.shape[0],), UNKNOWN, device=pixels.device)
        parts = (answer.logits, answer.extra, answer.penultimate, self.head)
        return Outputs(answer.features, labels, *parts)


def write_graph(graph: Graph, size: int, channels: int, path: Path) -> None:
    """Write ``graph`` for any number of images, and check that onnxruntime computes the same as torch."""
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
            program.save(path)
            expected = graph(other.to(device))
        session = onnxruntime.InferenceSession(path)
        found = session.run(None, {"pixels": other.numpy()})
    except Exception as error:  # torch's exporter and onnxruntime have dozens of errors of their own
        raise UserError(
            f"this network ({kind}) cannot be written as ONNX: {_describe_error(error)}"
        ) from error
    for name, torch_output, onnx_output in zip(graph.output_names, _as_tuple(expected), found, strict=True):
        difference = float(np.abs(torch_output.cpu().numpy() - onnx_output).max())
        if not difference <= LARGEST_DIFFERENCE * max(1.0, float(torch_output.abs().max())):
            raise UserError(f"this network ({kind}) answers differently as ONNX: {name} by {difference:.2g}")


def _describe_error(error: BaseException) -> str:
    """Return the first line of the root cause; the errors above it are about torch's exporter."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)[:200]


def _as_tuple(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (outputs,) if isinstance(outputs, Tensor) else outputs


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
