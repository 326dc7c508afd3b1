"""NAIS."""
