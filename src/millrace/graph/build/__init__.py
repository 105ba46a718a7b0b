"""One module for each way in which the user's calls become nodes of the graph."""
