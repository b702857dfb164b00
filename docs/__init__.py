"""Documents of the project, and what makes the generated ones."""
