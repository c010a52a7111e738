"""Settings of the loop: length, optimizer, schedule, device, seed."""

from __future__ import annotations

from dataclasses import dataclass

from ..distributed.batch_norm import STATISTICS
from ..errors import UserError, choose

OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("cosine", "step", "restarts")
PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class TrainingSettings:
    """The loop's settings."""

    epochs: int = 100
    max_steps: int | None = None  # stop after so many steps, whatever the epochs say
    batch_size: int = 256
    optimizer: str = "adam"  # adam, adamw, sgd (with momentum)
    lr: float = 1e-3  # learning rate at the top of the schedule
    lr_min: float = 5.12e-5  # and at the end of a cosine
    schedule: str = "cosine"  # cosine; step: × gamma at each milestone; restarts: several cosines
    milestones: tuple[float, ...] = (0.3, 0.6, 0.9)  # of step, as shares of the steps
    gamma: float = 0.1
    restarts: int = 2  # of restarts: one cosine more than this
    cycle_growth: float = 1.0  # each cosine is so many times as long as the one before
    schedule_stretch: float = 1.0  # the schedule is made for so many times the steps, and cut off at the end
    warmup_steps: int = 0  # linear rise from 0 to the schedule's own value
    momentum: float = 0.9  # of sgd
    nesterov: bool = True
    betas: tuple[float, float] = (0.9, 0.999)  # of adam and adamw
    weight_decay: float = 0.0
    clip_norm: float | None = None  # largest norm of the whole gradient
    seed: int = 0
    device: str = "auto"  # auto, cpu, cuda, mps
    precision: str = "fp32"  # fp32; bf16 and fp16 only where the hardware has units for them
    compile: bool = False  # torch.compile the network: a few per cent faster on a CPU, after half a minute
    limit_per_class: int | None = None  # train on so many images per class, drawn by the seed
    batch_norm: str = "sync"  # with several processes: statistics of the whole batch, or local: of one's rows
    log_every: int = 10  # steps between rows of history.jsonl
    checkpoint_minutes: float = 2.0  # the longest time that a kill can cost

    def __post_init__(self) -> None:
        choose("optimizer", self.optimizer, OPTIMIZERS)
        choose("schedule", self.schedule, SCHEDULES)
        if not all(0 < m < 1 for m in self.milestones) or list(self.milestones) != sorted(self.milestones):
            raise UserError(f"milestones must be rising shares between 0 and 1, not {self.milestones}")
        for name, value in (("momentum", self.momentum), *(("betas", beta) for beta in self.betas)):
            if not 0 <= value < 1:
                raise UserError(f"{name} must lie in [0, 1), not {value}")
        if not (self.gamma > 0 and self.cycle_growth > 0 and self.restarts >= 0):
            raise UserError("gamma and cycle_growth must be positive, and restarts not negative")
        if not self.schedule_stretch >= 1:
            raise UserError(f"schedule_stretch must be at least 1, not {self.schedule_stretch}")
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
