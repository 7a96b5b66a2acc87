"""What the sensors of devices show: a simulation of each device that is brought up to date whenever somebody looks.

    load              a pattern -> the load at an instant; loads that pods ask for
    simulation        a device under loads and faults: its counters, its temperature, its sensors
    sensor_readings   all sensors of a device or a partition at one instant
    sensors           the devices of a node: who holds them, what loads them, what is wrong with them

All of it is pure and without a clock. An instant is in seconds since the machine's boot, by the agent's clock.
"""
