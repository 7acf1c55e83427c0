"""Attention without a matrix of scores."""
