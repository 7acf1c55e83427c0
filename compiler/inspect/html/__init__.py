"""Pages that show a network: one HTML file each, which needs no network and no other file."""
