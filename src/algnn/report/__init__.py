"""The report on runs: one page, and the same as Markdown, LaTeX and CSV.

`data` decides which runs are compared with which; `tables` and `figures` show them, `build` puts
these in order, `export` and `page` write the result.
"""
