"""Clients keep nothing, and adapt the shared model before they are evaluated."""
