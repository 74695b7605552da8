"""Caches as files that other loaders read: equal caches give equal bytes, and nothing is ever overwritten."""
