"""What the collective operators share: cases, knobs, refusals, device functions, launches.  Declares no kernel."""
