"""Comparisons and experiments: a plan, its runs, and a report made from them."""
