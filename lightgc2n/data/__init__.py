"""Log files become a prepared dataset, a dataset becomes a split, a split becomes batches."""
