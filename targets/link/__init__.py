"""Links objects, constants, runtime and metadata into the files that nnefc writes."""
