"""The report on runs: a leaderboard as one page; when asked for, Markdown, LaTeX and CSV.

`data` decides which runs are compared with which, `board` ranks the methods, `tables` and `charts`
show the runs, `build` puts these in order, `export` writes the result.
"""
