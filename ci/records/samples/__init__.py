"""The samples of trials, out of git: as Parquet parts in a branch of results, a folder or an object store."""
