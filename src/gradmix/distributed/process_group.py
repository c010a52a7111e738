"""The processes that share one training step: which rows are one's own, and how to get the others'.

Every process has the same network, draws the same random numbers for the whole batch, and works on its own
rows of it. What a step computes is then a function of recipe and step number, whatever the number of
processes. :data:`SINGLE_PROCESS`, a group of one, is the identity everywhere and costs nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import UserError, first_line


class PeerLost(UserError):
    """Another process is gone; whoever started them all will say which, and start them again or not."""


class ProcessGroup:
    """A group of one process. :class:`TorchProcessGroup` overrides what several do differently.

    All methods but :meth:`rows` are collective: every process calls them, in the same order.
    """

    rank: int = 0
    size: int = 1

    def __deepcopy__(self, memo: object) -> ProcessGroup:
        """Return itself: a copied network belongs to the same processes."""
        return self

    def rows(self, n: int) -> slice:
        """Return this process's share of a batch of ``n``; the shares of all ranks are disjoint and equal.

        >>> SINGLE_PROCESS.rows(8)
        slice(0, 8, None)
        """
        each = n // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def all_gather(self, own: Tensor) -> Tensor:
        """Return the (N, …) rows of all processes, in the order of ranks, from the (n, …) rows of each.

        The gradient flows to the own rows. Where every process computes the loss of the whole batch, that
        is all the gradient there is, the rows' part as negatives of other processes' anchors included.
        """
        return own

    def exchange_rows(self, own: Tensor, index: Tensor) -> Tensor:
        """Return rows ``index[rows(N)]`` of the whole batch, of which ``own`` are this process's rows.

        ``index``: (N,), on the CPU, the same in all processes. Each row travels only to where it is wanted.
        """
        return own[index.to(own.device)]

    def all_reduce_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes: one reduction for all of them."""

    def maximum(self, value: Tensor) -> Tensor:
        """Return the largest value of all processes, element by element."""
        return value

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return of each flag whether some process says so."""
        return flags

    def broadcast_bytes(self, content: bytes) -> bytes:
        """Return what rank 0 gives, on every rank."""
        return content

    @contextmanager
    def raise_together(self) -> Iterator[None]:
        """Raise in all processes the mistake that any finds in the block; no collective calls inside."""
        yield

    def leave(self) -> None:
        """End the work in common; what follows, each process does alone."""

    def from_first(self, make: Callable[[], Any]) -> Any:
        """Return what ``make`` returns on rank 0 (plain values, as in JSON); it is called there only."""
        made = ""
        with self.raise_together():
            if self.rank == 0:
                made = json.dumps(make())
        return json.loads(self.broadcast_bytes(made.encode()))


SINGLE_PROCESS = ProcessGroup()


class TorchProcessGroup(ProcessGroup):
    """Those of torch's default process group: gloo for tensors on the CPU, nccl for those on a GPU.

    ``calls`` and ``bytes`` count what this process has handed to each kind of collective so far.
    """

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def all_gather(self, own: Tensor) -> Tensor:
        sent = own.detach().contiguous()
        received = [torch.empty_like(sent) for _ in range(self.size)]
        self._call("gather", sent, lambda: dist.all_gather(received, sent))
        received[self.rank] = own  # the same values, with their graph
        return torch.cat(received)

    def exchange_rows(self, own: Tensor, index: Tensor) -> Tensor:
        n, everywhere = len(own), len(index)
        holder = index // n
        mine = (holder == self.rank).nonzero()[:, 0]  # ascending, so in the order of who wants them
        wanted = index[self.rows(everywhere)]
        leaving = own[(index[mine] - self.rank * n).to(own.device)].contiguous()
        arriving = own.new_empty(own.shape)  # rows one after the other, whatever the layout of ``own``
        to = torch.bincount(mine // n, minlength=self.size).tolist()
        of = torch.bincount(wanted // n, minlength=self.size).tolist()
        self._call("exchange", leaving, lambda: dist.all_to_all_single(arriving, leaving, of, to))
        # Arrivals come sorted by holder, and within one holder in the order in which they are wanted.
        position = torch.argsort(wanted // n, stable=True).to(own.device)
        rows = torch.empty_like(own)
        rows[position] = arriving
        return rows

    def all_reduce_(self, tensors: Sequence[Tensor]) -> None:
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self._call("reduce", flat, lambda: dist.all_reduce(flat))
        done = 0
        for tensor in tensors:
            tensor.copy_(flat[done : done + tensor.numel()].view(tensor.shape))
            done += tensor.numel()

    def maximum(self, value: Tensor) -> Tensor:
        largest = value.clone()
        self._call("agree", largest, lambda: dist.all_reduce(largest, op=dist.ReduceOp.MAX))
        return largest

    def any(self, *flags: bool) -> tuple[bool, ...]:
        votes = torch.tensor(flags, dtype=torch.int32)
        self._call("agree", votes, lambda: dist.all_reduce(votes, op=dist.ReduceOp.MAX))
        return tuple(bool(vote) for vote in votes)

    def broadcast_bytes(self, content: bytes) -> bytes:
        length = torch.tensor(len(content))
        self._call("broadcast", length, lambda: dist.broadcast(length, src=0))
        whole = torch.empty(int(length), dtype=torch.uint8)
        if self.rank == 0 and content:
            whole.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        if len(whole):
            self._call("broadcast", whole, lambda: dist.broadcast(whole, src=0))
        return bytes(whole.numpy())

    @contextmanager
    def raise_together(self) -> Iterator[None]:
        mistake = ""
        try:
            yield
        except PeerLost:
            raise
        except (UserError, OSError) as error:
            mistake = str(error) or "it failed without saying why"
        if any(self.any(bool(mistake))):
            raise UserError(self._first_mistake(mistake))

    def leave(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def _first_mistake(self, mistake: str) -> str:
        """Return the mistake of the lowest rank that made one."""
        said: list[str | None] = [None] * self.size
        dist.all_gather_object(said, mistake)
        rank, first = next((rank, text) for rank, text in enumerate(said) if text)
        return first if rank == 0 else f"process {rank}: {first}"

    def _call(self, kind: str, tensor: Tensor, collective: Callable[[], object]) -> None:
        self.calls[kind] += 1
        self.bytes[kind] += tensor.numel() * tensor.element_size()
        try:
            collective()
        except RuntimeError as error:  # what gloo and nccl raise when the other side is gone
            why = first_line(error).split(". ")[0]
            raise PeerLost(f"another process of this run has ended or is out of reach ({why})") from error
