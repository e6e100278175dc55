"""Requests to one server, for `ask` and `pacs`."""
