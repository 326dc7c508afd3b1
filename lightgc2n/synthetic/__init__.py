"""Generated logs: households, and single users merged into shared accounts."""
