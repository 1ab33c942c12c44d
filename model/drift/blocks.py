"""The parts of a day in which drift is measured: a block is compared with the same hours of the days before."""

BLOCK_SECONDS = 21_600
SLOTS = 4  # blocks of a day
