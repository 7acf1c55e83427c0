"""What every part may use: errors and warnings, files in memory, files that are written."""
