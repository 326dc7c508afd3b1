"""Tensor pieces that several models share."""
