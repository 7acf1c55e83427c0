"""Compares networks with a reference tensor by tensor, and finds the pass or lowering stage that causes a
difference.
"""
