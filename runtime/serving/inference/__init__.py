"""Served models, and the service that answers requests with them."""
