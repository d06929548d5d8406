"""Pure decisions on a turn: no I/O, no clock, no randomness."""
