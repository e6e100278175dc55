"""Bootstrap intervals, paired tests, correlation and aggregation."""
