"""Next items for an account or for a history alone, from a trained run or a bundle."""
