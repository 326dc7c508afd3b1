"""The Python API: what `lightgc2n/__init__.py` offers, a thin layer over the functions that the commands call."""
