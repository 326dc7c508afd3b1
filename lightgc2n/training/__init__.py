"""Training: run folders, the loop, checkpoints, warm start, CUDA graphs."""
