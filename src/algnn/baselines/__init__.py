"""The methods that AL-GNN is compared with: a file for each family over one shared loop."""
