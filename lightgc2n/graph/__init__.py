"""Training sequences become a sparse graph of accounts and items."""
