"""Served models, and a request's way through one of them."""
