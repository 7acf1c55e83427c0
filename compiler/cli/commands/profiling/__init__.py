"""Times runs of libraries, and draws the page that shows the times."""
