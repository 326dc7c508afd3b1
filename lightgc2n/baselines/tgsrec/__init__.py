"""TGSRec."""
