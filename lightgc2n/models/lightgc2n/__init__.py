"""LightGC²N as the paper writes it, with the parts that only it uses, and its six ablations."""
