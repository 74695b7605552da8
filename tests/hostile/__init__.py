"""What somebody else may have put there on purpose."""
