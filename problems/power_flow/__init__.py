"""Power flow over zones: network data, partitions, the conic model and reports on its solutions."""
