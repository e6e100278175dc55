"""Which texts a model is asked: the built-in sets, the authors' books, and the user's files."""
