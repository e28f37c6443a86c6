"""What a trial line says of a sweep: which points its arms are."""
