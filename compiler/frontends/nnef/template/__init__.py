"""Documents that are templates in the language of minijinja, filled in with the model's files in JSON, as by tract.

text.py         the text in pieces: as it is, expressions, statements
expressions.py  the syntax of expressions
statements.py   the syntax of statements
values.py       what values are, how they are compared and written, and what limits their sizes
functions.py    filters, tests and functions
rendering.py    the evaluation
"""
