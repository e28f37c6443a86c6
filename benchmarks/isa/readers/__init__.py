"""Reading machine code: instructions and loops, metrics of AMD and NVIDIA code, stores to other ranks."""
