"""What the mutation table is made of: damage, a bench to judge it on, groups of rows, and the page."""
