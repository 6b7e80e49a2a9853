"""`emu report`: one HTML page about a folder of runs, complete in itself: who wins, curves, the memory, settings.

series.py     runs -> thinned learning curves         memories.py   snapshots -> points and drawings
summary.py    runs -> the tables at the top           settings.py   runs -> settings and provenance
page.py       all of it into template/, one file      packing.py    arrays as text
"""
