"""What a command of the host program reports: its checks, its numbers, and how they are worded."""
