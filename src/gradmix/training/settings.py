"""How long, how fast, on what, from which seed."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UserError, choose
from ..models.batch_norm import STATISTICS

OPTIMIZERS = ("adam", "adamw", "sgd")
PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class TrainingSettings:
    """The loop's settings."""

    epochs: int = 100
    max_steps: int | None = None  # stop after so many steps, whatever the epochs say
    batch_size: int = 256
    optimizer: str = "adam"  # adam, adamw, sgd (with Nesterov momentum 0.9)
    lr: float = 1e-3  # learning rate at the top of the cosine
    lr_min: float = 5.12e-5  # and at its end
    warmup_steps: int = 0  # linear rise from 0 before the cosine
    weight_decay: float = 0.0
    clip_norm: float | None = None  # largest norm of the whole gradient
    seed: int = 0
    device: str = "auto"  # auto, cpu, cuda, mps
    precision: str = "fp32"  # fp32; bf16 and fp16 only where the hardware has units for them
    compile: bool = False  # torch.compile the network: a few per cent faster on a CPU, after half a minute
    limit_per_class: int | None = None  # train on so many images a class, drawn by the seed
    batch_norm: str = "sync"  # with several processes: statistics of the whole batch, or local: of one's rows
    log_every: int = 10  # steps between rows of history.jsonl
    checkpoint_minutes: float = 2.0  # the longest time that a kill can cost

    def __post_init__(self) -> None:
        choose("optimizer", self.optimizer, OPTIMIZERS)
        choose("precision", self.precision, PRECISIONS)
        choose("batch_norm", self.batch_norm, STATISTICS)
        choose("device", self.device.split(":")[0], ("auto", "cpu", "cuda", "mps"))
        for name in ("epochs", "batch_size", "log_every", "max_steps", "limit_per_class"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
        if self.batch_size < 2:
            raise UserError("batch_size must be at least 2: batch normalisation and contrast need company")
        for name in ("lr_min", "warmup_steps", "weight_decay", "checkpoint_minutes"):
            if not getattr(self, name) >= 0:  # nor NaN
                raise UserError(f"{name} must not be negative, not {getattr(self, name)}")
        if not self.lr > 0:
            raise UserError(f"lr must be positive, not {self.lr}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise UserError(f"clip_norm must be positive, or null for none, not {self.clip_norm}")
