"""Benchmarks: scenarios, the limits they are compared with, and whether a measurement is valid."""
