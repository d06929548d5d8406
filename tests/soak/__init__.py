"""The long versions of the fault tests: `make soak`."""
