"""What the package costs next to the work it cannot avoid; run by ``make bench``."""
