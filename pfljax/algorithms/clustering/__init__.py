"""Clients belong to clusters, each of which has a model."""
