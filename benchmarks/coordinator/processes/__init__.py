"""What the processes of a run do beside measuring."""
