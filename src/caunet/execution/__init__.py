"""Run one function on many items: here, in processes, or on a Ray cluster.

Every engine has one method, :meth:`Engine.run`. It takes a *factory* (called once in each worker, so that a network
is loaded once and not once per item) and the items, and yields one :class:`Outcome` per item: a value, or an error
with its message. A bad item ends as an error and the others go on; a worker that dies is replaced, and what it was
doing is done again.

>>> engine = create_engine("serial")
>>> for outcome in engine.map(float, ["1", "two", "3"]):
...     print(outcome.index, outcome.value, outcome.error)
0 1.0 None
1 None ValueError: could not convert string to float: 'two'
2 3.0 None
"""

from caunet.execution.engine import ENGINES, Engine, create_engine
from caunet.execution.outcome import Failure, Outcome

__all__ = ["ENGINES", "Engine", "Failure", "Outcome", "create_engine"]
