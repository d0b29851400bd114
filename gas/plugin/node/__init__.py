"""The node's labels and resources, and the feature file."""
