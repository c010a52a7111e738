"""Scores beyond the logits' as ONNX: those of methods, and those that learn from activations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradmix.data import ImageSet
from gradmix.detection import DETECTORS, Detector
from gradmix.export.onnx_graph import Graph
from gradmix.recognition import Recognizer, fit
from tests.detection.test_graphs import REFUSED
from tests.export.test_export import check, no_torch, pictures
from tests.models.tiny_clip import clip_fields
from tests.training.tiny import SMALL, tiny_images, tiny_recipe

__all__ = ["no_torch", "pictures"]
slow = pytest.mark.slow


def train(method: str, **fields: Any) -> Recognizer:
    more = {**SMALL.get(method, {}), **fields, "false_reject": 0.2, "holdout": 0.25}
    return fit(tiny_images(12), tiny_recipe(method=method, max_steps=6, **more))


@slow
@pytest.mark.parametrize(
    ("method", "fields", "score"),
    [
        ("proser", {"finetune_share": 0.5, "dummies": 2}, "placeholder"),
        ("rotpred", {}, "rotpred"),
        ("c2ae", {}, "reconstruction"),
        ("g-openmax-gan", {}, "g-openmax"),
        ("mcm", clip_fields("mcm"), "mcm"),
    ],
)
def test_a_methods_own_score(
    method: str, fields: dict[str, Any], score: str, pictures: list[Path], tmp_path: Path, no_torch: Path
) -> None:
    recognizer = train(**{"method": method, **fields})
    assert check(recognizer, "", pictures, tmp_path / "out", no_torch).detector.name == score


class AllScores(nn.Module):
    """One graph with every score of a network: the exporter takes its seconds once."""

    def __init__(self, graph: Graph, detectors: list[Detector]) -> None:
        super().__init__()
        self.parts, self.detectors = graph, detectors

    def forward(self, pixels: Tensor) -> list[Tensor]:
        outputs = self.parts.outputs(pixels)
        return [part for detector in self.detectors for part in detector.graph(outputs)]


def compare_all(recognizer: Recognizer, names: list[str], images: ImageSet, path: Path) -> None:
    """Export all scores as one graph, and compare onnxruntime's with the model's own."""
    import onnxruntime

    from gradmix.export.onnx_graph import silence_exporter

    detectors = [recognizer.with_detector(name).decision.detector for name in names]
    graph = AllScores(Graph(recognizer, recognizer.decision), detectors).eval()
    pixels = images.images.permute(0, 2, 3, 1).contiguous()
    with torch.no_grad(), silence_exporter():
        graph(pixels[:2])
        shapes = ({0: torch.export.Dim("images")},)
        program = torch.onnx.export(graph, (pixels[:2],), dynamic_shapes=shapes, dynamo=True, verbose=False)
    assert program is not None
    program.save(path)
    session = onnxruntime.InferenceSession(path)
    found = session.run(None, {session.get_inputs()[0].name: pixels.numpy()})
    outputs = recognizer.outputs(images, penultimate=True)
    for i, (name, detector) in enumerate(zip(names, detectors, strict=True)):
        wanted = detector.score(outputs)
        scale = max(1.0, float(wanted.score.abs().max()))
        np.testing.assert_allclose(found[2 * i], wanted.score.numpy(), atol=1e-4 * scale, err_msg=name)
        assert found[2 * i + 1].tolist() == wanted.label.tolist(), name


@slow
def test_all_scores_of_a_classifier(tmp_path: Path) -> None:
    recognizer = train("ce", projection="none")
    there = {"features", "logits", "penultimate", "head"}
    names = [name for name, kind in DETECTORS.items() if kind.needs <= there and name not in REFUSED]
    assert {"fdbd", "gen", "nci", "residual", "rmds", "she", "temperature", "vim"} <= set(names)
    compare_all(recognizer, [*names, "mls+nno"], tiny_images(4, seed=5), tmp_path / "all.onnx")


@slow
def test_scores_of_clip_with_patches(tmp_path: Path) -> None:
    images = tiny_images(4, seed=5)
    compare_all(train(**clip_fields("locoop")), ["gl-mcm", "mcm"], images, tmp_path / "clip.onnx")
