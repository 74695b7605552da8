"""Write the valid samples of a scanned dataset as a dataset again, in the layout of its loader."""
