"""Ways to deal rows to clients."""
