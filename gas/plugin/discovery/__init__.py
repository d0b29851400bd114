"""The cards of the node, from sysfs."""
