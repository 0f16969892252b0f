"""One method per file, written to read like its paper."""
