"""Features beside the probabilities of the classes that an encoder was trained on.

    h = [ √(x / Σⱼ xⱼ + ε),  λ·√p ],   p = softmax(V x + c),   λ = ½

x (d,) is what the encoder gives, V (K, d) and c (K,) the classifier that was published with it (ImageNet's
1000 classes). Both halves are square roots of shares, so their inner products are Bhattacharyya
coefficients Σⱼ √(sⱼ tⱼ): a few strong features no longer outweigh all others, and images are alike if the
encoder takes them for the same of its own classes. So an unknown image that the encoder takes for another
of them is told apart, although its features are near. Where the classes are none of the encoder's, p says
little: λ keeps it the smaller part. Everything after h stays linear.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from .bodies import BODIES, Body, Plan

KIND = "evidence"
_WEIGHT = 0.5  # λ; a larger one told images of another kind (SVHN among TinyImageNet) less well
_EPSILON = 1e-6  # under the root, whose slope is infinite at 0; a mean share is 8e-4


class Evidence(Body):
    """Images (N, C, H, W) to h (N, dim of the encoder + classes): see the module.

    ``classes``: of the published classifier; 0 where the published weights say how many.
    """

    def __init__(self, plan: Plan, classes: int = 0) -> None:
        super().__init__()
        weight = None if plan.weights is None else plan.weights.get("fc.weight")
        if not classes and weight is None:
            raise UserError(
                "evidence needs published weights with their classifier: give init: pretrained, "
                "or set evidence: false"
            )
        self.encoder = plan.make_encoder(plan.channels)
        dim = int(self.encoder.dim)
        self.classifier = nn.Linear(dim, classes if weight is None else len(weight))
        if weight is not None:
            bias = None if plan.weights is None else plan.weights.get("fc.bias")
            if weight.shape != self.classifier.weight.shape:
                raise UserError(
                    f"evidence: the classifier 'fc' is {tuple(weight.shape)}, not on {dim} features"
                )
            self.classifier.weight.data.copy_(weight)
            self.classifier.bias.data.copy_(torch.zeros(len(weight)) if bias is None else bias)
        self.stem, self.dim = str(self.encoder.stem), dim + self.classifier.out_features
        self.layer_names = {name: f"encoder.{path}" for name, path in self.encoder.layer_names.items()}

    def resolve(self, description: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**description, "classes": self.classifier.out_features}

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.encoder(x)
        return combine_evidence(features, self.classifier(features))


def combine_evidence(features: Tensor, logits: Tensor) -> Tensor:
    """Return h (N, d + K) of features (N, d), negative ones taken for 0, and logits (N, K): see the module.

    >>> combine_evidence(torch.tensor([[1.0, 3.0]]), torch.zeros(1, 4))
    tensor([[0.5000, 0.8660, 0.2500, 0.2500, 0.2500, 0.2500]])
    """
    features = features.clamp(min=0)
    total = features.sum(dim=1, keepdim=True).clamp(min=_EPSILON)
    root = (0.5 * torch.log_softmax(logits, dim=1)).exp()  # √p, with a slope also where p vanishes
    return torch.cat([(features / total + _EPSILON).sqrt(), _WEIGHT * root], dim=1)


BODIES[KIND] = Evidence
