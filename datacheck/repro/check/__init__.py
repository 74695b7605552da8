"""What of a process is not pinned: the facts that are judged, what is judged by them, what sets and what tries it."""
