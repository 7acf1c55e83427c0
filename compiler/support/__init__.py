"""Utilities that every part of the compiler may import: errors and warnings, mapped files, output files."""
