"""One process or several: the same loop, the same global batch, the same samples in it.

Under ``torchrun`` each process takes its slice of every global batch and the gradients are summed with the weight
of the slice, so the update is the one a single process would make up to the order of additions (which can be fixed,
too: :attr:`caunet.training.TrainConfig.shards`). One process leads: it alone reads and writes the run's directory,
and sends what it found, or what went wrong, to the others.
"""

import contextlib
import functools
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from caunet.errors import PeerError, TrainingError

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["World", "world"]

T = TypeVar("T")

# How long to wait for a process that is alive and silent. One that died closes its connections and is noticed
# at once; this is for a machine that lost its power or its network.
_PATIENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class World:
    """Which process this is (``rank``) of how many (``size``), and where it computes."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    restarts: int = 0
    """How often ``torchrun`` has started these processes again."""

    @property
    def leads(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def add_up(self, parts: Sequence[Tensor], in_order: bool = False) -> Tensor:
        """The sum of the ``parts`` (tensors of one shape) of all processes.

        Args:
            parts: as many in every process.
            in_order: add the first part of the first process to its second, and so on to the last part of the last:
                so that the bits do not depend on which process has which parts. It takes a message of the size of all
                parts to every process.
        """
        total = torch.stack(list(parts))
        if in_order and self.size > 1:
            gathered = [torch.empty_like(total) for _ in range(self.size)]
            with _exchange():
                dist.all_gather(gathered, total)
            total = torch.cat(gathered)
        total = functools.reduce(torch.add, total.unbind())
        if self.size > 1 and not in_order:
            with _exchange():
                dist.all_reduce(total)
        return total

    def highest(self, number: int) -> int:
        """The greatest ``number`` of all processes."""
        if self.size == 1:
            return number
        value = torch.tensor([number], device=self.device)
        with _exchange():
            dist.all_reduce(value, dist.ReduceOp.MAX)
        return int(value.item())

    def on_rank0(self, work: Callable[[], T]) -> T:
        """Let the leading process (rank 0) do ``work``, and give its result (picklable) to all, or its failure.

        >>> World().on_rank0(lambda: 6 * 7)
        42

        Raises:
            PeerError: in the other processes, when ``work`` failed in the leading one (which raises the failure).
        """
        if self.size == 1:
            return work()
        outcome: list[Any] = [None, None]  # the result; the message of the failure
        if self.leads:
            try:
                outcome[0] = work()
            except Exception as error:
                with contextlib.suppress(PeerError):  # nobody is left to receive it
                    self._broadcast([None, str(error)])
                raise
        self._broadcast(outcome)
        if outcome[1] is not None:
            raise PeerError(outcome[1])
        result: T = outcome[0]
        return result

    def _broadcast(self, values: list[Any]) -> None:
        with _exchange():
            dist.broadcast_object_list(values, src=0, device=self.device)

    @contextlib.contextmanager
    def all_or_none(self) -> Iterator[None]:
        """A block that every process gets through, or none: after it each knows whether another failed in it.

        The first process that failed raises its own error, all others raise :class:`PeerError`. No messages
        may be exchanged inside the block.
        """
        try:
            yield
        except Exception as error:
            first, message = self._first_failure(str(error))
            if first == self.rank == 0:
                raise
            if first == self.rank:
                raise TrainingError(f"process {self.rank} of {self.size}: {error}") from error
            raise PeerError(message) from error
        first, message = self._first_failure(None)
        if first is not None:
            raise PeerError(message)

    def _first_failure(self, mine: str | None) -> tuple[int | None, str]:
        if self.size == 1:
            return (None, "") if mine is None else (0, mine)
        failures: list[str | None] = [None] * self.size
        with _exchange():
            dist.all_gather_object(failures, mine)
        return next(((rank, text) for rank, text in enumerate(failures) if text is not None), (None, ""))


@contextlib.contextmanager
def world(device: str = "cpu") -> Iterator[World]:
    """The processes ``torchrun`` started (gloo on CPUs, nccl on GPUs), or just this one."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield World(device=torch.device(device))
        return
    place = _place(device)
    if dist.is_initialized():  # by a program that calls train(): the group is its own to end
        yield _here(place)
        return
    # Here and not above: builds of torch without torch.distributed train on one process.
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://", timeout=_PATIENCE))
    with _exchange():
        store = _fresh(store, rank, size)
        backend = "nccl" if place.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)
    try:
        yield _here(place)
    except BaseException:
        # Closing gloo's connections informs the others at once. nccl would first wait for messages that never
        # come; there the end of this process does it.
        if place.type != "cuda":
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()


def _place(device: str) -> torch.device:
    local = int(os.environ.get("LOCAL_RANK", "0"))
    place = torch.device("cuda", local) if device == "cuda" else torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    return place


def _here(place: torch.device) -> World:
    here = World(dist.get_rank(), dist.get_world_size(), place)
    # Each machine counts its own restarts: the highest count is the run's.
    return replace(here, restarts=here.highest(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))))


def _fresh(store: "Store", rank: int, size: int) -> "Store":
    """A part of ``store`` that only processes alive now write to.

    ``torchrun`` keeps one store for all its restarts (pytorch/pytorch#135712). The addresses that processes
    leave there under their rank are then found by those of the next life, who call the dead: the connection is
    refused, or hangs. So the leading process first meets every other one by a name that was never used before.
    """
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    name = uuid.uuid4().hex
    room = name
    if rank == 0:
        for other in range(1, size):
            _invite(store, other, room)
    else:
        store.set(f"caunet/name/{rank}", name)
        room = store.get(f"caunet/room/{name}").decode()
        store.set(f"caunet/arrived/{name}/{room}", "yes")
    return PrefixStore(f"caunet/{room}", store)


def _invite(store: "Store", other: int, room: str) -> None:
    deadline = time.monotonic() + _PATIENCE.total_seconds()
    while time.monotonic() < deadline:
        # The name may be one that a process of a former life has left; then nobody comes, and we ask again.
        name = store.get(f"caunet/name/{other}").decode()
        store.set(f"caunet/room/{name}", room)
        for _ in range(20):
            if store.check([f"caunet/arrived/{name}/{room}"]):
                return
            time.sleep(0.01)
    raise PeerError(f"process {other} did not come within {_PATIENCE}")


@contextlib.contextmanager
def _exchange() -> Iterator[None]:
    """Failures of the exchange itself: another process has ended, or cannot be reached."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise PeerError(f"another process of this run has ended or cannot be reached ({reason})") from error
