"""Served models, and the service that runs requests on them."""
