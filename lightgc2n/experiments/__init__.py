"""Plans and their runner, comparisons, tuning, and results as typed records."""
