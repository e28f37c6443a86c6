"""GitHub: the client, the comment and its check runs, and what people order in comments."""
