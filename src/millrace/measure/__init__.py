"""How fast, how much, how safely: what `millrace bench` and `make chaos` call."""
