"""The IR's contract between passes, and its verifier."""
