//! An Elastic IP for a pod: the instance metadata service, EC2, and what is undone.
