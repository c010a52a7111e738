"""The device, its precision, and compilation."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..methods import Embed
from ..models.compiled import compile_network

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device(name: str) -> torch.device:
    """Return the device; ``auto`` is the best there is, and a device that is not there is refused."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("device cuda: this torch sees no CUDA device; use --device cpu or auto")
    if name.startswith("mps") and not torch.backends.mps.is_available():
        raise UserError("device mps: this machine has no Apple GPU; use --device cpu or auto")
    try:
        return torch.device(name)
    except RuntimeError:
        raise UserError(f"no device '{name}'; use auto, cpu, cuda, cuda:0, … or mps") from None


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse arithmetic that the hardware would have to emulate: it would only be slower."""
    if precision == "fp32":
        return
    if device.type == "cpu":
        if precision == "fp16":
            raise UserError("precision fp16: CPUs have no fp16 training units; use fp32")
        has: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
        if not (has.get("avx512_bf16") or has.get("amx_bf16") or has.get("bf16")):
            raise UserError(
                "precision bf16: this CPU has no bf16 units (AVX512-BF16 or AMX) and would be many times "
                "slower than with fp32; use fp32"
            )
        if has.get("amx_bf16") and not _survives_bf16():
            raise UserError(
                "precision bf16: this machine announces AMX and ends the programs that use it, as some "
                "virtual ones do; set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16, or use fp32"
            )
    elif device.type == "cuda" and precision == "bf16" and not torch.cuda.is_bf16_supported(False):
        raise UserError("precision bf16: this GPU has no bf16 units (it is older than Ampere); use fp16")


@functools.cache
def _survives_bf16() -> bool:
    """Multiply two matrices in a process of its own: no exception tells of an illegal instruction."""
    work = "import torch; a = torch.ones(64, 64).bfloat16(); torch.nn.functional.linear(a, a, a[0])"
    done = subprocess.run([sys.executable, "-c", work], stderr=subprocess.DEVNULL)
    return done.returncode >= 0  # a negative one is the signal that ended it


def check_compile(device: torch.device, processes: int = 1) -> None:
    """Refuse what torch.compile cannot do: it writes C++ for a CPU, and needs a compiler for it."""
    if processes > 1:
        raise UserError("compile: the network of several processes is not compiled; leave it out")
    if device.type == "cpu" and not any(map(shutil.which, ("g++", "clang++", os.environ.get("CXX", "")))):
        raise UserError("compile: torch.compile needs a C++ compiler (g++ or clang++) here; leave it out")


def make_embedder(network: nn.Module, device: torch.device, precision: str, compiled: bool = False) -> Embed:
    """Return a call of the network in ``precision``; embeddings are float32, in which losses are computed."""
    call: Embed = _compile_unless_watched(network) if compiled else network
    if precision == "fp32":
        return call
    dtype = _DTYPES[precision]

    def embed(images: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype):
            z = call(images)
        return z.float()

    return embed


def _compile_unless_watched(network: nn.Module) -> Embed:
    """Compile the network, but call it as it is while it has hooks: compiled code would not call them."""
    fast, modules = compile_network(network), list(network.modules())

    def embed(images: Tensor) -> Tensor:
        watched = any(module._forward_hooks for module in modules)
        z: Tensor = network(images) if watched else fast(images)
        return z

    return embed
