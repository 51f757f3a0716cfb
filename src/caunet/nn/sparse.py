"""Products with few non-zero weights: what makes a pruned network fast."""

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

__all__ = ["SparseRows"]


class SparseRows:
    """A matrix (K, I) kept as its non-zero entries, row by row; ``rows @ x`` is (K, P) for columns x (I, P).

    A row of the product is a weighted sum of a few rows of x: an embedding bag. With a few hundred columns, which the
    cache holds, that does 20 billion operations a second on one thread, several times more than products of sparse
    matrices do (benchmarks/sparse.py).

    >>> rows = SparseRows(torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]]))
    >>> rows @ torch.tensor([[1.0], [10.0], [100.0]])
    tensor([[ 20.],
            [  0.],
            [301.]])
    >>> rows.count
    3
    """

    def __init__(self, matrix: Tensor) -> None:
        matrix = matrix.detach()
        row, column = matrix.nonzero(as_tuple=True)
        self.inputs = matrix.shape[1]
        self.column, self.value = column, matrix[row, column]
        counts = torch.bincount(row, minlength=len(matrix))
        self.start = torch.cat((counts.new_zeros(1), counts.cumsum(0)))

    @property
    def count(self) -> int:
        """How many entries are not zero."""
        return len(self.value)

    def __matmul__(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or len(x) != self.inputs:
            raise ValueError(f"x must have the shape ({self.inputs}, columns), got {tuple(x.shape)}")
        return embedding_bag(
            self.column, x, self.start, mode="sum", per_sample_weights=self.value, include_last_offset=True
        )
