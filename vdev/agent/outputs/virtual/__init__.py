"""What stands on the host for virtual devices: nodes and files, and the serial lines behind them."""
