"""The bundle format and what runs one; depends on no other room."""
