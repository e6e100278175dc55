"""What most tests of results need."""

from result_fixtures import bundle, data, world

__all__ = ["bundle", "data", "world"]
