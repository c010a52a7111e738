"""Encoder, projection and, where a method wants one, a head: what is trained, saved and used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError, choose
from .bodies import Plan, build_body
from .encoders import find_encoder, resolve_stem
from .heads import Head, build_head
from .pretrained import load_pretrained, load_pretrained_head, read_weights
from .probes import Probe, Sizes, build_probe
from .published import find_weights
from .staged import StagedEncoder

PROJECTIONS = ("linear", "mlp", "none", "whiten")


@dataclass(frozen=True)
class Answer:
    """What a network says about N images: features (N, d), logits (N, K) if it has a head, and more.

    ``penultimate`` (N, dim): what the encoder gives, before the projection.
    """

    features: Tensor
    logits: Tensor | None
    extra: dict[str, Tensor] = field(default_factory=dict)
    penultimate: Tensor | None = None


class Network(nn.Module):
    """x → encoder → projection → z; logits = classifier(z) if there is one.

    The classifier (any :class:`Head`) sits on z, not on the encoder, so that every method's z is what its own
    objective shaped, and detectors compare like with like. ``projection``: linear, mlp (one hidden layer),
    whiten (linear and square, at first the identity), or none, where z is what the encoder gives.
    """

    def __init__(
        self,
        encoder: nn.Module,
        dim: int,
        feature_dim: int,
        projection: str = "linear",
        head: Head | None = None,
        unit_features: bool = False,
    ) -> None:
        """Set ``unit_features`` where only the direction of z was trained: its length means nothing."""
        super().__init__()
        self.unit_features = unit_features
        self.encoder = encoder
        self.feature_dim = dim if projection in ("none", "whiten") else feature_dim
        if projection == "mlp":
            layers = [nn.Linear(dim, dim, bias=False), nn.BatchNorm1d(dim), nn.ReLU(inplace=True)]
            self.projection: nn.Module = nn.Sequential(*layers, nn.Linear(dim, feature_dim))
        elif projection == "none":
            self.projection = nn.Identity()
        else:
            linear = nn.Linear(dim, self.feature_dim)
            if projection == "whiten":
                nn.init.eye_(linear.weight)
                nn.init.zeros_(linear.bias)
            self.projection = linear
        self.classifier = head
        self.probe: Probe | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return embeddings z (N, feature_dim), not normalized, of images (N, C, H, W)."""
        z: Tensor = self.projection(self.encoder(x))
        return z

    def features(self, z: Tensor) -> Tensor:
        """Return what detectors compare: z, or its direction where only that was trained."""
        return nn.functional.normalize(z, dim=1) if self.unit_features else z

    def logits(self, z: Tensor) -> Tensor | None:
        """Return the class logits of embeddings, or None for a network without a head."""
        return None if self.classifier is None else self.classifier(z)

    def answer(self, x: Tensor) -> Answer:
        """Return all that detectors may need of images (N, C, H, W), from one pass."""
        h: Tensor = self.encoder(x)
        z: Tensor = self.projection(h)
        extra = {} if self.classifier is None else self.classifier.extra(z)
        if self.probe is not None:
            extra |= self.probe(self, x, z)
        return Answer(self.features(z), self.logits(z), extra, h)

    @property
    def features_are_penultimate(self) -> bool:
        """Whether the features are what the encoder gives: no projection, and lengths that mean something."""
        return isinstance(self.projection, nn.Identity) and not self.unit_features

    @torch.no_grad()
    def linear_head(self) -> tuple[Tensor, Tensor] | None:
        """Return W (K, dim) and b (K,) on the CPU with logits = W h + b, h what the encoder gives.

        Through a linear projection z = W₁h + b₁ it is exact: W = W₂W₁, b = W₂b₁ + b₂. None where the logits
        are no linear map of h: another kind of head, or an mlp projection.
        """
        last = None if self.classifier is None else self.classifier.linear()
        if last is None or not isinstance(self.projection, nn.Linear | nn.Identity):
            return None
        weight = last.weight.detach().cpu().double()
        bias = (
            torch.zeros(len(weight), dtype=torch.float64) if last.bias is None else last.bias.cpu().double()
        )
        if isinstance(self.projection, nn.Linear):
            bias = bias + weight @ self.projection.bias.detach().cpu().double()
            weight = weight @ self.projection.weight.detach().cpu().double()
        return weight.float(), bias.float()

    @property
    def num_classes(self) -> int:
        """How many classes its logits are of; 0 without a head."""
        return 0 if self.classifier is None else self.classifier.num_classes


@dataclass(frozen=True)
class NetworkSpec:
    """All that is needed to build a network, as plain values: a model file holds it beside the weights.

    ``head`` is what :meth:`Head.describe` gives, or None; likewise ``probe``, and ``body``, which says what
    stands in place of the plain encoder.
    """

    encoder: str
    stem: str
    channels: int
    image_size: int
    projection: str = "linear"
    feature_dim: int = 128
    unit_features: bool = False
    head: Mapping[str, Any] | None = None
    body: Mapping[str, Any] | None = None
    probe: Mapping[str, Any] | None = None

    def build(self, init: str = "", init_head: bool = False) -> Network:
        """Build the network: fresh weights from torch's global generator, the encoder's from ``init``.

        With ``init_head`` the linear classifier's are from there too.
        """
        weights = read_weights(find_weights(init, self.encoder)) if init else None

        def make_encoder(channels: int) -> StagedEncoder:
            encoder = find_encoder(self.encoder)(channels, resolve_stem(self.stem, self.image_size, weights))
            if weights is not None:
                load_pretrained(encoder, dict(weights), init)
            return encoder

        if self.body is None:
            encoder: nn.Module = make_encoder(self.channels)
        else:
            encoder = build_body(self.body, Plan(make_encoder, self.channels, self.image_size, weights))
        dim = encoder.dim
        assert isinstance(dim, int)
        network = Network(encoder, dim, self.feature_dim, self.projection, unit_features=self.unit_features)
        if self.head is not None:  # last, as its weights have always been drawn last
            network.classifier = build_head(self.head, network.feature_dim)
        if weights is not None and init_head:
            if self.projection != "none":
                raise UserError("init_head: that classifier sits on the encoder; set projection: none")
            load_pretrained_head(network.classifier, weights, init)
        if self.probe is not None:
            sizes = Sizes(network.feature_dim, network.num_classes, self.channels, self.image_size)
            network.probe = build_probe(self.probe, sizes)
        # Faster; and here, for a loaded network must have it too: convolutions round differently without.
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def describe(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_description(values: Mapping[str, Any]) -> NetworkSpec:
        """Return the spec that :meth:`describe` described; raise UserError if it is none."""
        try:
            spec = NetworkSpec(**values)
        except TypeError as error:
            raise UserError(f"the description of the network is not one: {error}") from error
        choose("projection", spec.projection, PROJECTIONS)
        return spec
