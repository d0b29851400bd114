"""What the node says about its cards: labels, resources, the feature file."""
