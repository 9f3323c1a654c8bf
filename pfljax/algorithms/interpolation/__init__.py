"""Clients keep a model of their own, mixed with the shared one."""
