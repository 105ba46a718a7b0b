"""Records to rows and back."""
