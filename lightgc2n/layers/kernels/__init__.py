"""The hot loops of a training step on a GPU as Triton kernels: what the plain layers compute, in one pass each.

Imported only where `layers/gpu.py` finds a GPU and Triton; a test compares each kernel with the plain layer.
"""
