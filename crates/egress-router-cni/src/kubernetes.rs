//! One ConfigMap, read with the kubeconfig of the node.
