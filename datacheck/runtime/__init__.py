"""Operating-system services: files by handle, durable writes, digests, a sandbox for children."""
