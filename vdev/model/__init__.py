"""The data model: devices, names, quantities, and the models of the configuration file. Pure."""
