"""Triton kernels for the hot loops of a training step on a GPU: each computes in one pass what a plain layer computes.

Imported only where `support.py` finds a GPU and Triton; tests/layers/test_kernels.py compares each with its layer.
"""
