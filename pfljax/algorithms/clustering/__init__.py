"""Clients belong to a cluster, which has a model."""
