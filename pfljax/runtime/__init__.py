"""The machine: devices, processes, memory, progress, and errors in one line."""
