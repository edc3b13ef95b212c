"""The report on runs: a leaderboard as one page; when asked for, Markdown, LaTeX and CSV.

`data` decides which runs are compared with which; `board` ranks the methods and gives the page what
it draws; `tables` and `figures` show the runs, `build` puts these in order, `export` and `page`
write the result.
"""
