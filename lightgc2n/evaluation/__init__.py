"""How good a model's lists are: ranks over the full catalogue, metrics, intervals and paired tests."""
