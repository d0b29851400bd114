"""Timed results, as ratios of two things measured in one run: machines differ and are noisy, ratios hold."""
