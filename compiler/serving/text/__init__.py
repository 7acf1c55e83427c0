"""Serves language models by OpenAI's interface."""
