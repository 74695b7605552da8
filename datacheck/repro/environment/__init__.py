"""The sections of a capture: how the process was started, what it has loaded, what it runs on. Read, never set."""
