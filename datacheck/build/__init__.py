"""Build, check, repair, reuse, export and remove caches."""
