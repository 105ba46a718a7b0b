"""Runs the query in a child process and starts it again when it dies."""
