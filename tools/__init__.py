"""Tools for working on caunet, run from a checkout as ``python -m tools.NAME``; no part of the package."""
