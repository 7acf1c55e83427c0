"""Rules that rewrite each operator in blocked layout: one family a file, each with a table of rules."""
