"""Landscapes of finished runs, which `pfljax landscape` computes and draws."""
