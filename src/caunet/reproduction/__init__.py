"""The paper's tables beside ours: a grid of runs, each finished once, and a report."""

__all__: list[str] = []
