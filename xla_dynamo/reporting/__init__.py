"""The report of a run: one HTML page, or text, of what was compiled and run, and why.

gather.py     what is kept while the program runs
snapshot.py   that, and what is counted anyway -> a `Run` (model.py), which is plain data
page.py       a Run -> HTML, by the template in files/; drawing.py lays out what it draws
terminal.py   a Run -> text
session.py    when a report begins and ends, and the names of its files
"""
