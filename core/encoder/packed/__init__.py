"""The packed way: the tokens of a batch form one matrix, and no row of it is padding."""
