"""What one training step computes. A new method is one file here, one line below, and a recipe."""

from .arpl import ARPL
from .arpl_cs import ARPLCS
from .attentive_cutmix import AttentiveCutMix
from .auxiliary import Auxiliary
from .c2ae import C2AE
from .clipn import CLIPN
from .conosr import ConOSR
from .cross_entropy import CrossEntropy, CrossEntropySSL
from .frozen import Frozen
from .g_openmax import GOpenMax
from .g_openmax_gan import GOpenMaxGAN
from .gradmix import GradMixMethod
from .grrosr import GRROSR
from .interface import Context, Embed, Embedder, Method, Progress, Stage, Views
from .locoop import LoCoOp
from .logitnorm import LogitNorm
from .mcm import MCM
from .medaf import MEDAF
from .moco import MoCo
from .negprompt import NegPrompt
from .openauc import OpenAUC
from .osrci import OSRCI
from .proser import PROSER
from .rotpred import RotPred

METHODS: dict[str, type[Method]] = {
    "gradmix": GradMixMethod,
    "ce": CrossEntropy,
    "ce+ssl": CrossEntropySSL,
    "moco": MoCo,
    "frozen": Frozen,
    "attentive-cutmix": AttentiveCutMix,
    "arpl": ARPL,
    "openauc": OpenAUC,
    "proser": PROSER,
    "arpl-cs": ARPLCS,
    "mcm": MCM,
    "locoop": LoCoOp,
    "negprompt": NegPrompt,
    "clipn": CLIPN,
    "conosr": ConOSR,
    "logitnorm": LogitNorm,
    "rotpred": RotPred,
    "medaf": MEDAF,
    "grrosr": GRROSR,
    "c2ae": C2AE,
    "osrci": OSRCI,
    "g-openmax": GOpenMax,
    "g-openmax-gan": GOpenMaxGAN,
}

__all__ = [
    "ARPL",
    "ARPLCS",
    "C2AE",
    "CLIPN",
    "GRROSR",
    "MCM",
    "MEDAF",
    "METHODS",
    "OSRCI",
    "PROSER",
    "AttentiveCutMix",
    "Auxiliary",
    "ConOSR",
    "Context",
    "CrossEntropy",
    "CrossEntropySSL",
    "Embed",
    "Embedder",
    "Frozen",
    "GOpenMax",
    "GOpenMaxGAN",
    "GradMixMethod",
    "LoCoOp",
    "LogitNorm",
    "Method",
    "MoCo",
    "NegPrompt",
    "OpenAUC",
    "Progress",
    "RotPred",
    "Stage",
    "Views",
]
