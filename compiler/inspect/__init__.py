"""Shows the contents of models and libraries: costs, graphs, pages."""
