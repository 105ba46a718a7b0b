"""Tools for development: the demo, brokers on this machine, timelines."""
