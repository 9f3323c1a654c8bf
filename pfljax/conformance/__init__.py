"""What every method must hold to: the laws, and small federations to see them on."""
