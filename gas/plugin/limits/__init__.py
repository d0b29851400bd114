"""Limits of the cards' memory that the kernel enforces on pods."""
