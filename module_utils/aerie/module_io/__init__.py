"""What goes into and comes out of every Ansible module: secrets are masked, results have one form."""
