"""The study of readers: their agreement, and models beside them (docs/subgroups.md §6.3)."""
