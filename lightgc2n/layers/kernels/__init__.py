"""Triton kernels for the hot loops of a training step on a GPU: each computes in one pass what a plain layer computes.

Imported only where `has_kernels` of `devices.py` is true; tests/layers/test_kernels.py compares each with its layer.
"""
