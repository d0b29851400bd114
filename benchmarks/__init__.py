"""Benchmarks: each measures two things in one run and gives their ratio, because machines differ and are noisy."""
