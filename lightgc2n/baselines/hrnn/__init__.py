"""HRNN."""
