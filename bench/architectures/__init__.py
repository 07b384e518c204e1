"""Architectures of timm and transformers, small and with random weights: which of them we take."""
