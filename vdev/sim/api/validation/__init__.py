"""What Kubernetes demands of objects: types of fields, and rules for kinds that have many."""
