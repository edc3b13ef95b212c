"""What runs say: one page, and the same as Markdown, LaTeX and CSV.

`evidence` sorts out the records, `tables` and `charts` hold what is shown of them, `outline` says
in which order; `texts` and `page` write it, and `files` puts it on disk.
"""
