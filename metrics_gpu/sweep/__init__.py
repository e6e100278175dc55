"""Saliency grids and regions to integer counts at all thresholds, on the CPU and on the GPU."""
