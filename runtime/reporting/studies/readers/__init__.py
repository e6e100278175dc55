"""The study of readers: their agreement, and models beside them (docs/trust.md §6.3)."""
