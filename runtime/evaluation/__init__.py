"""The evaluation loop: bundles x datasets -> one Parquet file of counts per cell."""
