"""The log in a folder: SQLite files, no server, for the processes of one machine."""
