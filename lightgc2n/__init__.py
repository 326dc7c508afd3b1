"""Recommendations for accounts that several people share."""

__version__ = "0.1.0"
