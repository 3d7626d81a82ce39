//! What kube-controller-manager does in every cluster.
