"""What is reported, and of which parameters, over which clients, and when."""
