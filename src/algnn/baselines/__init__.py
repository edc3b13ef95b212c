"""The methods that AL-GNN is compared with: one file each over one shared training loop."""
