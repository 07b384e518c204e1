"""Questions that passes ask about a module, and rewriting of its functions."""
