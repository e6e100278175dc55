"""Readers beside those of the regions: what they marked, and datasets that leave one of theirs out."""
