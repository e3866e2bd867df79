"""What the commands in bench/ are made of: each measures one thing beside what limits it."""
