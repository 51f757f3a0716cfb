"""Many pictures of one scene: stacks and videos brought into one frame."""

__all__: list[str] = []
