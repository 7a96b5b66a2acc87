"""What a cluster does with slices and claims: it judges slices, evaluates selectors and allocates devices."""
