"""Clients keep a model of their own, tied to the models of the others."""
