"""Slow, plain-NumPy versions of every equation, written from the paper and never from the package."""
