"""Ranks of targets, ranking metrics, bootstrap intervals, paired tests and clustering scores."""
