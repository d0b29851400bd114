"""How much of the cards the pods of this node really use, beside what they requested."""
