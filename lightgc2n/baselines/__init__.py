"""Baselines, a file or a folder each; simple baselines count and have no gradients."""
