"""Clients keep nothing: there is one model for all."""
