"""Tests of whether a map can be trusted: exact measures of localisation, similarity of maps, subgroups, verdicts."""
