"""Parts of the study, one file each: which cells it has, how one is measured, its tables and its plots."""
