"""What the operating system is asked for: files by handle, a sandbox around a child."""
