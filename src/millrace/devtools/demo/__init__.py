"""One command from nothing to a live map: a simulated city, the log, a job and the server, each a process of its own."""
