"""What a project of your own needs for Ridgeline: its settings, asv's file, a workflow, a first declaration."""
