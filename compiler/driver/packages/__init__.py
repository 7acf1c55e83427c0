"""Packages of a network for the build systems of phones, browsers and microcontrollers."""
