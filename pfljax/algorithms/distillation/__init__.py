"""Clients learn from each other's outputs, or from a small shared model."""
