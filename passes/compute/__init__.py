"""TE computations that passes choose for a network: what is computed; loop orders are left to schedules."""
