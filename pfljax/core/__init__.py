"""What a method is made of: the contract, and the vocabulary of one client."""
