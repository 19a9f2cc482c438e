"""Fixtures that several modules of tests have."""

from planted import faulty, shim

__all__ = ["faulty", "shim"]
