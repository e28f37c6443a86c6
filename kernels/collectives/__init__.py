"""What the collective families share: refusals, device functions, plans.  It declares no kernel itself."""
