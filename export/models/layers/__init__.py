"""Layers shared by the models, written with the published tensor names."""
