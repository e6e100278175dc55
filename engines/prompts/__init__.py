"""Prompt sets of a bundle: the format of their files, encoding and adding."""
