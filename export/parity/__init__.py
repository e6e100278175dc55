"""Does the exported graph compute what the model computes: probes, comparisons, the report."""
