"""`stretto audit`: what is wrong with this machine. Checks look at facts and at measurements and give findings, each
with what was expected, why, the likely cause and the next step. `table` has the list of all of them.
"""
