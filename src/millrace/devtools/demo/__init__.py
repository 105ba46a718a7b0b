"""One command from nothing to a live map: a simulated city, the log, the jobs and the server, each in a
process of its own.
"""
