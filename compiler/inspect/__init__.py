"""What is in models and libraries: costs, graphs, pages."""
