"""What kubelet really gave, against what was decided."""
