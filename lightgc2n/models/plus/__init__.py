"""LightGC²N-plus, with the parts that only it uses, and its ablations."""
