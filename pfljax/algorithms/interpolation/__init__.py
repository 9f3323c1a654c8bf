"""Clients keep a model of their own, which is mixed with the shared one."""
