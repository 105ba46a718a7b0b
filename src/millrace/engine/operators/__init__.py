"""One file per operator, named after the word in the API."""
