"""What people look at: the page, what it is told, and reports. Nothing in here judges."""
