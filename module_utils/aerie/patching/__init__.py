"""Keep a declared series of edits on installed Python distributions, judged by digests alone."""
