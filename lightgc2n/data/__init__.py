"""Import log files into a prepared dataset, split it, and make batches of it."""
