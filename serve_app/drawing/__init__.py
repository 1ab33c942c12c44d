"""Pictures and pages in one file, for incident reports and evaluations.

html    a page that needs no other file
svg     elements and axes of a picture
"""
