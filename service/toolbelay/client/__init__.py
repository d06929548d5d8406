"""Client library for gateways."""
