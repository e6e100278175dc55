"""Writes bundles as a model repository for NVIDIA Triton."""
