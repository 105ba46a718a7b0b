"""Where results go besides the log: other people's databases, which follow a topic and hold the newest pane of each key."""
