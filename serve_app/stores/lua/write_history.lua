-- ARGV: history.
write_history(1)
return DONE
