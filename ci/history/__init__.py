"""What changed, when, by how much and how surely: change points of the recorded series, and the events they make."""
