"""Defines the operators that networks are made of, one family per file, independent of the exchange formats.

An operator is a frozen dataclass: its fields are its attributes, its docstring defines it and says where the definition
is from, `shape` infers the shape of its result, and `lower` builds it in Relax. Front ends read files and translate
attributes:

    MaxPool(Window(size=(3, 3), stride=(2, 2))).lower(emitter, x)
"""
