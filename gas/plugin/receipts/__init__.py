"""Receipts: the cards that kubelet really gave, compared with the decision."""
