"""Clients keep nothing, and adapt the one model when they are judged."""
