"""The data behind two runs: digests of samples, what was hashed before, and how files and values differ."""
