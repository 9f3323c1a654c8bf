"""From settings to a finished run."""
