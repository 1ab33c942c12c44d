"""``tagae evaluate``: verdict files judged on recordings, as tables, JSON and one page of HTML with pictures.

inputs      which file of verdicts belongs to which recording
judgements  every detector judged on every recording
measures    the figures by name
words       figures as text
documents   the same as JSON
terminal    the same as tables
svg         marks and axes
plots       what is drawn
page        the page
"""
