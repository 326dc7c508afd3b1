"""LightGC²N as the paper writes it, and its six ablations."""
