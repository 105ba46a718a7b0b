"""Types of events, values from outside, and expressions: what a column may hold."""
