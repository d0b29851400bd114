"""Discovery of the node's cards in sysfs."""
