"""Reports of runs and caches: text, HTML pages, CI formats, cards, experiment trackers."""
