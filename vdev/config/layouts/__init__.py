"""Files of named layouts, among which a label of the node chooses: mig-parted's form, and device-config-manager's."""
