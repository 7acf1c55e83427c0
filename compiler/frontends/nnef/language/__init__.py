"""Language of NNEF documents: lexer, grammar, syntax tree, types, rules."""
