"""The contract of methods, and the building blocks that they share."""
