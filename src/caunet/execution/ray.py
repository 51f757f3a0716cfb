"""A Ray cluster: on this machine, or wherever ``address`` says. Extra ``ray``.

``EstimateBatch``, the class that estimates inside of Ray datasets, is found here as well.
"""

import importlib
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from caunet.execution.engine import Engine, Factory, Item, Result
from caunet.execution.outcome import Failure, Outcome
from caunet.execution.worker import INTERRUPTED, run_item
from caunet.extras import require

__all__ = ["EstimateBatch", "Ray"]  # noqa: F822  (the first by __getattr__)

# Found here by name, because this is where people look for what belongs to Ray. It lives with what it runs: engines
# know nothing of images.
_ELSEWHERE = {"EstimateBatch": "caunet.estimation.data_batches"}

_RETRIES = 3  # how often Ray runs an item again whose worker or node has died
_PATIENCE = 60.0  # seconds that items have to save their state after Ctrl-C


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE[name]), name)


class Ray(Engine):
    """Items as Ray tasks of one core each.

    A session that exists already is used and left running. Without one, Ray joins the cluster at ``address``, or
    starts on this machine. caunet must be installed on every node, in the same version.

    Args:
        workers: items at once; by default one per core of the cluster.
        address: of the cluster, such as ``ray://head:10001`` or ``auto``.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        self._ray: Any = require("ray", "ray", "Engine 'ray'")
        self._asked, self._address = workers, address
        self._started = False

    @property
    def workers(self) -> int:  # type: ignore[override]  # known only when the cluster is
        self._start()
        return self._asked or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def close(self) -> None:
        if self._started:
            self._started = False
            self._ray.shutdown()

    def _start(self) -> None:
        if self._ray.is_initialized():
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if self._address is None:
            options |= {"num_cpus": self._asked, "include_dashboard": False}
        self._ray.init(self._address, **options)
        self._started = True

    def _run(
        self, factory: Factory[Item, Result], items: Iterable[Item], ahead: int, lead: int | None
    ) -> Iterator[Outcome[Result]]:
        import cloudpickle

        self._start()
        ray = self._ray
        key, packed = uuid.uuid4().hex, ray.put(cloudpickle.dumps(factory))
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(run_item)
        source = iter(enumerate(items))
        pending: dict[Any, int] = {}
        limit, taken = self.workers * (1 + ahead), 0
        try:
            while True:
                while len(pending) < limit:
                    first = min(pending.values(), default=taken)
                    numbered = None if lead is not None and taken - first >= lead else next(source, None)
                    if numbered is None:
                        break
                    taken += 1
                    pending[task.remote(key, packed, *numbered)] = numbered[0]
                if not pending:
                    return
                done, _ = ray.wait(list(pending), num_returns=1)
                yield self._outcome(done[0], pending.pop(done[0]))
        except KeyboardInterrupt:
            yield from self._interrupt(pending)
            raise
        finally:
            for _ in self._interrupt(pending):
                pass

    def _outcome(self, reference: Any, index: int) -> Outcome[Any]:
        try:
            outcome: Outcome[Any] = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            message = f"its worker ended without an answer: {str(error).strip().splitlines()[0]}"
            return Outcome(index, error=Failure("WorkerDied", message, str(error)))
        return outcome

    def _interrupt(self, pending: dict[Any, int]) -> Iterator[Outcome[Any]]:
        """Ask what is under way to end, and yield what it answers within the time for that."""
        if not pending:
            return
        references, indices = list(pending), dict(pending)
        pending.clear()
        for reference in references:
            self._ray.cancel(reference)
        done, _ = self._ray.wait(references, num_returns=len(references), timeout=_PATIENCE)
        for outcome in (self._outcome(reference, indices[reference]) for reference in done):
            if outcome.error is None or outcome.error.kind not in (INTERRUPTED, "WorkerDied"):
                yield outcome
