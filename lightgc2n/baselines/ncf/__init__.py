"""GMF, MLP and NeuMF."""
