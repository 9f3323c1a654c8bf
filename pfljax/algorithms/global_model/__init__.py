"""Clients keep nothing: one model for all."""
