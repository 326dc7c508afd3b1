"""Writing files safely: atomic writes, one writer at a time, and which folders the product made."""
