"""One module per feed."""
