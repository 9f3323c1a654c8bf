"""Clients keep a model of their own, tied to the others'."""
