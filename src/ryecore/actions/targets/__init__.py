"""What runs elsewhere: on a node, by a queue's workers, or on a Ray cluster."""
