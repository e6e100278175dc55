"""The tokenizer of a model's text encoder: its vocabulary on this machine, and its rules."""
