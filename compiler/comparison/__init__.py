"""Networks compared with a reference tensor by tensor: where results differ, by how much, and since which pass."""
