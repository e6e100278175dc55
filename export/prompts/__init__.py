"""The prompts of a model: the built-in sets, the authors' books, and the user's files."""
