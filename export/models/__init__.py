"""The built-in models, one file each."""
