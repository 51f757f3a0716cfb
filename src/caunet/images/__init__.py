"""Images as they come from outside: read, checked and brought to one form."""

__all__: list[str] = []
