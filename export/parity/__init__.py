"""Checks that the exported graph computes what the model computes: probes, comparisons, the report."""
