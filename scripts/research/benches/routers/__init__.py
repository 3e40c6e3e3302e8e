"""The comparison of routers: gates that choose experts for each example."""
