"""What the sensors of devices show: a function of the device, who holds it, what fails, the seed and the instant.

    shapes      how a load runs: its level at an instant, and what it comes to between two
    history     what drove a device since when: energy and errors at any instant are integrals over it
    reading     all sensors of a device and its partitions at one instant
    drives      plan, pods and annotations -> what drives each device now

All of it is pure and without a clock. An instant is in seconds since the machine's boot, by the agent's clock.
"""
