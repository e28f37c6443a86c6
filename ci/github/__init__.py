"""GitHub: the client, and the comment with its check runs."""
