"""What comes of it: rows, their statistics, the report for people and for machines."""
