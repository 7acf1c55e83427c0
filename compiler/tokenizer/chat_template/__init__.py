"""Chat templates as programs of libraries."""
