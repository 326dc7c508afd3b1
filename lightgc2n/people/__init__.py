"""Estimate how many people share an account and who caused each event, with numpy only."""
