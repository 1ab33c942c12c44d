"""The page, the documents that it reads, and incident reports."""
