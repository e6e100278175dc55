"""The machine and its setup: configuration file, paths, sizes, installed packages, code, doctor."""
