"""Training nothing but linear maps: the features of an encoder that somebody else has trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..models import LinearHead, ModelSettings, NetworkSpec
from ..models.evidence import KIND as EVIDENCE
from ..models.linear_fits import fit_logistic, fit_whitening
from .interface import Method

NAME = "frozen"
_STRENGTH = 0.01  # of the classifier (scikit-learn's C): a thousand features, and few images to a class


@dataclass(frozen=True)
class FrozenSettings:
    """What is fitted to the features of the training images; the encoder stays as it is."""

    evidence: bool = False  # beside the features, probabilities of the classes that init was trained on
    whiten: bool = False  # a linear map after which classes spread alike in all directions
    train_head: bool = False  # a linear classifier, for scores that need logits


class Frozen(Method):
    """No objective, and so no step: :func:`gradmix.recognition.fit` indexes the features straight away.

    Whatever is fitted to them (``whiten``, ``train_head``) is fitted in one go, by :meth:`fit_features`.
    """

    Settings = FrozenSettings
    unit_features = True  # whatever trained the encoder, neighbours are compared by their direction
    view_count = 1
    needs_training = False
    takes_towers = True
    takes_one_class = True

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network with no projection but the whitening: an untrained one only blurs the features.

        With a head only if it is trained (``train_head``) or there are weights for it (``init_head``).
        """
        if settings.train_head and model.init_head:
            raise UserError("train_head and init_head: the classifier is trained, or taken from init")
        if settings.evidence and (model.init_head or plain.body is not None):
            other = "init_head" if model.init_head else f"encoder {plain.encoder}"
            raise UserError(f"evidence does not go with {other}: choose one of them")
        if settings.whiten and model.init_head:
            raise UserError("whiten and init_head: that classifier knows features that are not whitened")
        projection = "whiten" if settings.whiten else "none"
        spec = super().describe_network(plain, settings, model, num_classes)
        spec = replace(
            spec, projection=projection, body={"kind": EVIDENCE} if settings.evidence else spec.body
        )
        if not (model.init_head or settings.train_head):
            return spec
        return replace(spec, head={"kind": "linear", "classes": num_classes, "bias": model.classifier_bias})

    @property
    def fits_features(self) -> bool:
        """Whether there is anything to fit."""
        return bool(self.settings.whiten or self.settings.train_head)

    @torch.no_grad()
    def fit_features(self, features: Tensor, labels: Tensor, whiten: bool = True) -> None:
        """Fit what the settings ask for to the encoder's features (N, dim) and labels (N,).

        Without ``whiten`` the whitening stays the identity.
        """
        if self.settings.whiten and whiten:
            weight, bias = fit_whitening(features, labels)
            self.network.projection.load_state_dict({"weight": weight, "bias": bias})
        if self.settings.train_head:
            z = self.network.projection(features.to(next(self.network.parameters()).device)).cpu()
            weight, bias = fit_logistic(z, labels, self.network.num_classes, _STRENGTH).fold()
            head = self.network.classifier
            assert isinstance(head, LinearHead)
            head.weight.copy_(weight)
            if head.bias is not None:
                head.bias.copy_(bias)
