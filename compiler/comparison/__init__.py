"""Compares networks with a reference tensor by tensor, and finds the pass or kernel stage that causes a difference."""
