"""The studies behind the project: cells, how they are measured, and the tables, plots and pages of the results."""
