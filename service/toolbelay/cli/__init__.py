"""The toolbelay command."""
