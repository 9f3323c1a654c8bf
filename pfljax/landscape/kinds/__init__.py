"""Landscapes of finished runs: what `pfljax landscape` judges and draws."""
