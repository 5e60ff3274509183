"""What the console asks a cluster, over the wire."""
