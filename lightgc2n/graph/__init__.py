"""Sparse graphs of accounts and items, built from training sequences."""
