"""The revisions, in the order of their names, ten a folder: `005x` has 0050 to 0059."""
