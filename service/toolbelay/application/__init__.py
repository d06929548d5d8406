"""Use cases: one module each; they join the pure planner with the ports."""
