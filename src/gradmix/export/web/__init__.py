"""The files that the page of serve and the exported page share, and those of the exported one."""
