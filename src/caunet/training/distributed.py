"""One process or several: the same loop, the same global batch, the same samples in it.

Under ``torchrun`` each process takes its slice of every global batch and the gradients are summed with the weight
of the slice, so the update is the one a single process would make up to the order of additions.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = ["World", "world"]


@dataclass(frozen=True)
class World:
    """Which process this is (``rank``) of how many (``size``), and where it computes."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    restarts: int = 0

    @property
    def leads(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def share(self, batch: int) -> slice:
        """This process's slice of a global batch; sizes differ by at most one.

        >>> [World(rank, 3).share(100) for rank in range(3)]
        [slice(0, 34, None), slice(34, 67, None), slice(67, 100, None)]
        """
        small, larger = divmod(batch, self.size)
        start = self.rank * small + min(self.rank, larger)
        return slice(start, start + small + (self.rank < larger))

    def reduce_gradients(self, parameters: Iterable[nn.Parameter], loss: Tensor, weight: float) -> Tensor:
        """Sum gradients and loss over the processes, each with its ``weight`` (its share of the batch)."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([loss.detach().reshape(1), *(g.reshape(-1) for g in gradients)]) * weight
        dist.all_reduce(flat)  # one message: these networks are small, latency is what costs
        start = 1
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()
        return flat[0]

    def barrier(self) -> None:
        """Wait until every process is here."""
        if self.size > 1:
            dist.barrier()

    def any(self, flag: bool) -> bool:
        """Whether ``flag`` is set in any process."""
        if self.size == 1:
            return flag
        value = torch.tensor([float(flag)], device=self.device)
        dist.all_reduce(value)
        return bool(value.item() > 0)


@contextlib.contextmanager
def world(device: str = "cpu") -> Iterator[World]:
    """The processes ``torchrun`` started (gloo on CPUs, nccl on GPUs), or just this one."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield World(device=torch.device(device))
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    place = torch.device("cuda", local) if device == "cuda" else torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=timedelta(minutes=10))
    try:
        restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        yield World(dist.get_rank(), dist.get_world_size(), place, restarts)
    finally:
        dist.destroy_process_group()
