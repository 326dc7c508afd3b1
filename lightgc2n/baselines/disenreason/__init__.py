"""A model in the style of DisenReason."""
