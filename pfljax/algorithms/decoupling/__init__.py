"""Clients keep a part of the network."""
