"""Which device, and what arithmetic it is good at."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..methods import Embed

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device(name: str) -> torch.device:
    """``auto`` is the best there is; a device that is not there is refused."""
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
    elif device.type == "cuda" and precision == "bf16" and not torch.cuda.is_bf16_supported(False):
        raise UserError("precision bf16: this GPU has no bf16 units (it is older than Ampere); use fp16")


def embedder(network: nn.Module, device: torch.device, precision: str) -> Embed:
    """The network called in ``precision``; embeddings come out as float32, in which losses are computed."""
    if precision == "fp32":
        return network
    dtype = _DTYPES[precision]

    def embed(images: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype):
            z: Tensor = network(images)
        return z.float()

    return embed
