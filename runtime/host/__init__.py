"""The machine and its setup: configuration file, paths, sizes, installed packages, doctor."""
