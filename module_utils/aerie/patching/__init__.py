"""Keep a declared series of edits on installed Python distributions. Digests alone decide.

A patch's way: `series` reads what is declared, `observe` what is installed, `fold` computes what the series make of the
pristine files, `decide` what follows, `transaction` makes all changes or none, and `report` says what happened.
`engine` calls them in this order.
"""
