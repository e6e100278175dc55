"""Tokenizers for an export: finds a model's vocabulary on this machine and applies the model's rules."""
