"""A web page to explore a generator."""
