"""What is known of the samples of a case, while it is measured."""
