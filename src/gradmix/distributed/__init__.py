"""Several processes on one batch: the process group, joining torchrun's processes, BatchNorm across them."""

from .launch import assign_device, join_processes, launch_id, split_batch
from .process_group import SINGLE_PROCESS, PeerLost, ProcessGroup, TorchProcessGroup

__all__ = [
    "SINGLE_PROCESS",
    "PeerLost",
    "ProcessGroup",
    "TorchProcessGroup",
    "assign_device",
    "join_processes",
    "launch_id",
    "split_batch",
]
