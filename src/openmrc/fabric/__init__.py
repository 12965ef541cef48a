"""The network: topology, addresses, static tables and the vocabulary of faults."""
