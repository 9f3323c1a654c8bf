"""Clients keep a distribution over the parameters of a model."""
