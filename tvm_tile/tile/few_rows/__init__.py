"""Tiles of products of few rows, which take as long as reading their weights does."""
