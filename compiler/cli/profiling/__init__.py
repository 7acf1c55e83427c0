"""Timed runs of libraries, and the page that shows them."""
