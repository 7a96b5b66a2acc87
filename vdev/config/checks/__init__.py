"""What must fit together: keys of one item, items among each other, fault rules and the devices that they name."""
