
# The sections of -q, as they are printed.

q_identity() {
    say "    Product Name                                       : $name
    Product Brand                                      : $brand
    Product Architecture                               : $architecture
    Display Mode                                       : Requested functionality has been deprecated
    Display Attached                                   : No
    Display Active                                     : Disabled
    Persistence Mode                                   : $persistence
    Addressing Mode                                    : None
    MIG Mode
        Current                                        : $mig
        Pending                                        : $mig"
}

q_part() {
    say "    MIG Device
        Index                                          : $Part
        GPU Instance ID                                : $mig_gi
        Compute Instance ID                            : $mig_ci
        Device Attributes
            Shared
                Multiprocessor count                   : $mig_sms
                Copy Engine count                      : $mig_ce
                Encoder count                          : $mig_enc
                Decoder count                          : $mig_dec
                OFA count                              : $mig_ofa
                JPG count                              : $mig_jpg
        ECC Errors
            Volatile
                SRAM Uncorrectable                     : $mig_uncorrected
        FB Memory Usage
            Total                                      : $mig_total MiB
            Reserved                                   : $mig_reserved MiB
            Used                                       : $mig_used MiB
            Free                                       : $mig_free MiB
        BAR1 Memory
            Total                                      : $mig_bar1 MiB
            Used                                       : 0 MiB
            Free                                       : $mig_bar1 MiB"
}

q_accounting() {
    say "    Accounting Mode                                    : Disabled
    Accounting Mode Buffer Size                        : 4000"
}

q_board() {
    say "    Driver Model
        Current                                        : N/A
        Pending                                        : N/A
    Serial Number                                      : $serial
    GPU UUID                                           : $uuid
    GPU PDI                                            : $pdi
    Minor Number                                       : $minor
    VBIOS Version                                      : $vbios
    MultiGPU Board                                     : No
    Board ID                                           : $board_id
    Board Part Number                                  : $board_part
    GPU Part Number                                    : $gpu_part
    FRU Part Number                                    : N/A
    Platform Info
        Chassis Serial Number                          : N/A
        Slot Number                                    : N/A
        Tray Index                                     : N/A
        Host ID                                        : N/A
        Peer Type                                      : N/A
        Module Id                                      : N/A
        GPU Fabric GUID                                : N/A
    Inforom Version
        Image Version                                  : $inforom
        OEM Object                                     : 2.1
        ECC Object                                     : $inforom_ecc
        Power Management Object                        : N/A
    Inforom BBX Object Flush
        Latest Timestamp                               : N/A
        Latest Duration                                : N/A
    GPU Operation Mode
        Current                                        : N/A
        Pending                                        : N/A
    GPU C2C Mode                                       : Disabled
    GPU Virtualization Mode
        Virtualization Mode                            : None
        Host VGPU Mode                                 : N/A
        vGPU Heterogeneous Mode                        : N/A
    GPU Recovery Action                                : $recovery"
}

q_gsp() {
    say "    GSP Firmware Version                               : $driver"
}

q_pci() {
    say "    IBMNPU
        Relaxed Ordering Mode                          : N/A
    PCI
        Bus                                            : 0x$pci_bus
        Device                                         : 0x$pci_device
        Domain                                         : 0x$pci_domain
        Base Classcode                                 : 0x3
        Sub Classcode                                  : 0x2
        Device Id                                      : $pci_id
        Bus Id                                         : $bus_id
        Sub System Id                                  : $pci_sub_id
        GPU Link Info
            PCIe Generation
                Max                                    : $link_gen_max
                Current                                : $link_gen
                Device Current                         : $link_gen
                Device Max                             : $link_gen_max
                Host Max                               : N/A
            Link Width
                Max                                    : ${link_width_max}x
                Current                                : ${link_width}x
        Bridge Chip
            Type                                       : N/A
            Firmware                                   : N/A
        Replays Since Reset                            : $replays
        Replay Number Rollovers                        : 0
        Tx Throughput                                  : $pcie_tx KB/s
        Rx Throughput                                  : $pcie_rx KB/s
        Atomic Caps Outbound                           : N/A
        Atomic Caps Inbound                            : N/A
    Fan Speed                                          : $Fan"
}

q_performance() {
    say "    Performance State                                  : $pstate
    Clocks Event Reasons
        Idle                                           : $why_idle
        Applications Clocks Setting                    : Not Active
        SW Power Cap                                   : $why_power
        HW Slowdown                                    : $why_hw
            HW Thermal Slowdown                        : $why_hw
            HW Power Brake Slowdown                    : Not Active
        Sync Boost                                     : Not Active
        SW Thermal Slowdown                            : $why_hot
        Display Clock Setting                          : Not Active
    Clocks Event Reasons Counters
        SW Power Capping                               : 0 us
        Sync Boost                                     : 0 us
        SW Thermal Slowdown                            : 0 us
        HW Thermal Slowdown                            : 0 us
        HW Power Braking                               : 0 us
    Sparse Operation Mode                              : Disabled"
}

q_memory() {
    say "    FB Memory Usage
        Total                                          : $total MiB
        Reserved                                       : $reserved MiB
        Used                                           : $used MiB
        Free                                           : $free MiB
    BAR1 Memory Usage
        Total                                          : $bar1 MiB
        Used                                           : 1 MiB
        Free                                           : $((bar1 - 1)) MiB
    Conf Compute Protected Memory Usage
        Total                                          : 0 MiB
        Used                                           : 0 MiB
        Free                                           : 0 MiB"
}

q_compute() {
    say "    Compute Mode                                       : Default"
}

q_utilization() {
    say "    Utilization
        GPU                                            : $Util
        Memory                                         : $Mem_util
        Encoder                                        : $Enc_util
        Decoder                                        : $Dec_util
        JPEG                                           : $Idle_util
        OFA                                            : $Idle_util"
}

q_encoder() {
    say "    Encoder Stats
        Active Sessions                                : 0
        Average FPS                                    : 0
        Average Latency                                : 0"
}

q_fbc() {
    say "    FBC Stats
        Active Sessions                                : 0
        Average FPS                                    : 0
        Average Latency                                : 0"
}
