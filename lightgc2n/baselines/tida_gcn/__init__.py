"""TiDA-GCN."""
