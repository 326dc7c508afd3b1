"""The paper's eight experiments, its claims, and the report on them."""
