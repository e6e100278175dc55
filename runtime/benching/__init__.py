"""How fast: scenarios, the limits they are held against, and whether a measurement counts."""
