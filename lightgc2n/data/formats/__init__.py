"""Readers of common log formats; each yields data frames of strings, block by block."""
