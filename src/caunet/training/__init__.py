"""Training: configuration, the loop, checkpoints, several processes."""
