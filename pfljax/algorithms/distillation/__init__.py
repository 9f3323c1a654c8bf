"""Clients that learn from each other by what their models say, or by a small model."""
