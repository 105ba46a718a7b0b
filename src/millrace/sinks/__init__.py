"""Sinks: databases that follow a topic of results and hold the newest pane of each key."""
