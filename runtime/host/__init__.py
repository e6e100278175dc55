"""What this machine is and can: configuration, paths, sizes, packages, doctor."""
