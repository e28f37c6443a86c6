"""The records of sweeps: their trial lines as they are, apart from the series of cases."""
