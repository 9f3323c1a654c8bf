"""A run as it is written down: settings, the files of its folder, checkpoints."""
