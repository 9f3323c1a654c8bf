"""Client states beyond device memory: on the host, on disk, and in pages."""
