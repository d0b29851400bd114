"""Measure how much of the cards the pods of this node really use."""
