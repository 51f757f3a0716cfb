"""caunet learns how two images are related, and tells."""

__version__ = "0.1.0"
