"""Drafts schemas: profiles of fields, guesses of roles, groups of files."""
