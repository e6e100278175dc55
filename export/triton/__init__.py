"""Bundles as a model repository for NVIDIA Triton."""
