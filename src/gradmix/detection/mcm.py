"""Scores of CLIP: an image against the names of the classes.

``cosines`` (N, K) are those of the image's embedding with the classes' text embeddings, *without* CLIP's
logit scale of 100: with it, the softmax of :func:`mcm` would be the plain MSP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from .detector import FormulaDetector, require_positive
from .logits import msp


def mcm(cosines: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the maximum concept matching: max_k softmax(s / τ)_k of cosines s (N, K) (Ming et al. 2022).

    >>> mcm(torch.tensor([[0.3, 0.3]]))
    tensor([0.5000], dtype=torch.float64)
    """
    return msp(cosines, temperature)


def gl_mcm(cosines: Tensor, local_mcm: Tensor) -> Tensor:
    """Return MCM of the whole image plus that of its best patch, both at τ = 1 (Miyai et al. 2023).

    ``local_mcm`` (N, 1): the largest of max_k softmax(s_patch)_k over the patches. The network gives this one
    number, for the cosines of all patches would be (N, 196, K).

    >>> gl_mcm(torch.tensor([[0.3, 0.3]]), torch.tensor([[0.75]]))
    tensor([1.2500], dtype=torch.float64)
    """
    return mcm(cosines) + local_mcm.double().amax(dim=1)


def negprompt(cosines: Tensor, negative_cosines: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the largest share of a class among positive and negative prompts (Li et al. 2024).

    max over k of softmax((s, n) / τ)_k, of cosines s (N, K) with the classes and n (N, K·M) with M negative
    prompts per class, in any order.
    """
    p = torch.softmax(torch.cat([cosines, negative_cosines], dim=1).double() / temperature, dim=1)
    return p[:, : cosines.shape[1]].amax(dim=1)


def accept_probability(logits: Tensor, no_logits: Tensor) -> Tensor:
    """Return q_k = σ(f_k − g_k) (N, K): CLIPN's "is class k" f against "is not class k" g, scale included."""
    return torch.sigmoid(logits.double() - no_logits.double())


def clipn_ctw(logits: Tensor, no_logits: Tensor) -> Tensor:
    """Return q of the class with the largest logit: "competing to win" (Wang et al. 2023)."""
    best = logits.argmax(dim=1, keepdim=True)
    return accept_probability(logits, no_logits).gather(1, best)[:, 0]


def clipn_atd(logits: Tensor, no_logits: Tensor) -> Tensor:
    """Return Σ_k softmax(f)_k · q_k: "agreeing to differ" (Wang et al. 2023), 1 − P(unknown)."""
    return (torch.softmax(logits.double(), dim=1) * accept_probability(logits, no_logits)).sum(dim=1)


class MCM(FormulaDetector):
    """Maximum softmax of the cosines at ``temperature``."""

    name = "mcm"
    needs = frozenset({"cosines"})
    named_by: ClassVar[str] = "cosines"

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = require_positive(self.name, temperature)

    def score_parts(self, parts: Mapping[str, Tensor]) -> Tensor:
        return mcm(parts["cosines"], self.temperature)

    def settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature}


class GLMCM(FormulaDetector):
    """MCM of the image plus MCM of its best patch, both at τ = 1."""

    name = "gl-mcm"
    needs = frozenset({"cosines", "local_mcm"})
    named_by: ClassVar[str] = "cosines"

    def score_parts(self, parts: Mapping[str, Tensor]) -> Tensor:
        return gl_mcm(parts["cosines"], parts["local_mcm"])


class NegPrompt(MCM):
    """The largest share of a class's own prompt among all prompts, the negative ones included."""

    name = "negprompt"
    needs = frozenset({"cosines", "negative_cosines"})

    def score_parts(self, parts: Mapping[str, Tensor]) -> Tensor:
        return negprompt(parts["cosines"], parts["negative_cosines"], self.temperature)


class CLIPNCompeting(FormulaDetector):
    """CLIPN, "competing to win": how much the likeliest class is preferred to its negation."""

    name = "clipn-ctw"
    needs = frozenset({"logits", "no_logits"})

    def score_parts(self, parts: Mapping[str, Tensor]) -> Tensor:
        return clipn_ctw(parts["logits"], parts["no_logits"])


class CLIPNAgreeing(FormulaDetector):
    """CLIPN, "agreeing to differ": one minus the probability of no class."""

    name = "clipn-atd"
    needs = frozenset({"logits", "no_logits"})

    def score_parts(self, parts: Mapping[str, Tensor]) -> Tensor:
        return clipn_atd(parts["logits"], parts["no_logits"])
