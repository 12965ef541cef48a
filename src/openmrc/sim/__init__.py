"""The simulator: events, ports, NICs, and the run itself."""
