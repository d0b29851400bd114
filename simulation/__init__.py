"""Seeded simulation of the whole system in virtual time: see docs/simulation.md."""
