"""Encoder, projection and, where a method wants one, a classifier: what is trained and saved."""

from __future__ import annotations

from torch import Tensor, nn


class Network(nn.Module):
    """x → encoder → projection → z; logits = classifier(z) if there is one.

    The classifier sits on z, not on the encoder, so that every method's z is what its own objective
    shaped, and detectors compare like with like.
    """

    def __init__(
        self,
        encoder: nn.Module,
        dim: int,
        feature_dim: int,
        projection: str = "linear",
        num_classes: int = 0,
        unit_features: bool = False,
    ) -> None:
        """``unit_features``: z was trained by its direction alone, so its length means nothing."""
        super().__init__()
        self.unit_features = unit_features
        self.encoder = encoder
        self.feature_dim = feature_dim
        if projection == "mlp":
            layers = [nn.Linear(dim, dim, bias=False), nn.BatchNorm1d(dim), nn.ReLU(inplace=True)]
            self.projection: nn.Module = nn.Sequential(*layers, nn.Linear(dim, feature_dim))
        else:
            self.projection = nn.Linear(dim, feature_dim)
        self.classifier = nn.Linear(feature_dim, num_classes) if num_classes else None

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) to embeddings z (N, feature_dim), not normalised."""
        z: Tensor = self.projection(self.encoder(x))
        return z

    def features(self, z: Tensor) -> Tensor:
        """What detectors compare: z, or its direction where only that was trained."""
        return nn.functional.normalize(z, dim=1) if self.unit_features else z

    def logits(self, z: Tensor) -> Tensor | None:
        """Class logits of embeddings, or None for a network without a classifier."""
        return None if self.classifier is None else self.classifier(z)
