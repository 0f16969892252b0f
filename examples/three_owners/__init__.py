"""Three owners of one network: each keeps its loads, and they agree on voltages at the borders."""
