
# More sections of -q.
q_ecc() {
    say "    DRAM Encryption Mode
        Current                                        : N/A
        Pending                                        : N/A
    ECC Mode
        Current                                        : $ecc
        Pending                                        : $ecc
    ECC Errors
        Volatile
            SRAM Correctable                           : $sram_corrected
            SRAM Uncorrectable Parity                  : $sram_parity
            SRAM Uncorrectable SEC-DED                 : $sram_uncorrected
            DRAM Correctable                           : $dram_corrected
            DRAM Uncorrectable                         : $dram_uncorrected
        Aggregate
            SRAM Correctable                           : $sram_corrected
            SRAM Uncorrectable Parity                  : $sram_parity
            SRAM Uncorrectable SEC-DED                 : $sram_uncorrected
            DRAM Correctable                           : $dram_corrected
            DRAM Uncorrectable                         : $dram_uncorrected
            SRAM Threshold Exceeded                    : $sram_exceeded
        Aggregate Uncorrectable SRAM Sources
            SRAM L2                                    : $sram_parity
            SRAM SM                                    : $sram_uncorrected
            SRAM Microcontroller                       : $sram_parity
            SRAM PCIE                                  : $sram_parity
            SRAM Other                                 : $sram_parity
        Channel Repair Pending                         : No
        TPC Repair Pending                             : No
        Unrepairable Memory                            : No"
}

q_retired() {
    say "    Retired Pages
        Single Bit ECC                                 : N/A
        Double Bit ECC                                 : N/A
        Pending Page Blacklist                         : N/A"
}

q_remapped() {
    say "    Remapped Rows
        Correctable Error                              : $remapped_corrected
        Uncorrectable Error                            : $remapped_uncorrected
        Pending                                        : $remapped_pending
        Remapping Failure Occurred                     : $remapped_failed
        Bank Remap Availability Histogram              : N/A"
}

q_temperature() {
    if [ "$temp_margin" = N/A ]; then
        q_temperature_limits '' "$temp_shutdown" "$temp_slowdown" "$temp_max"
    else
        q_temperature_limits T.Limit $((temp_max - temp_shutdown)) $((temp_max - temp_slowdown)) 0
    fi
}

# Newer GPUs tell their limits as what is left up to the highest temperature at work.
q_temperature_limits() {
    Word=${1:+$1 }Temp
    say '    Temperature'
    printf '%-55s: %s\n' '        GPU Current Temp' "$temp C" '        GPU T.Limit Temp' "$Margin" \
        "        GPU Shutdown $Word" "$2 C" "        GPU Slowdown $Word" "$3 C" "        GPU Max Operating $Word" "$4 C" \
        '        GPU Target Temperature' N/A '        Memory Current Temp' "$Mem_temp" "        Memory Max Operating $Word" N/A
}

q_power() {
    say "    GPU Power Readings
        Average Power Draw                             : $power W
        Instantaneous Power Draw                       : $power W
        Current Power Limit                            : $power_limit W
        Requested Power Limit                          : $power_limit W
        Default Power Limit                            : $power_limit W
        Min Power Limit                                : $Least
        Max Power Limit                                : $power_limit W
    GPU Memory Power Readings 
        Average Power Draw                             : N/A
        Instantaneous Power Draw                       : N/A
    Module Power Readings
        Average Power Draw                             : N/A
        Instantaneous Power Draw                       : N/A
        Current Power Limit                            : N/A
        Requested Power Limit                          : N/A
        Default Power Limit                            : N/A
        Min Power Limit                                : N/A
        Max Power Limit                                : N/A
    Power Smoothing                                    : N/A
    Workload Power Profiles
        Requested Profiles                             : N/A
        Enforced Profiles                              : N/A"
}

q_clock() {
    say "    Clocks
        Graphics                                       : $clock MHz
        SM                                             : $clock MHz
        Memory                                         : $mem_clock MHz
        Video                                          : $video_clock MHz
    Applications Clocks
        Graphics                                       : $max_clock MHz
        Memory                                         : $max_mem_clock MHz
    Default Applications Clocks
        Graphics                                       : $max_clock MHz
        Memory                                         : $max_mem_clock MHz
    Deferred Clocks
        Memory                                         : N/A
    Max Clocks
        Graphics                                       : $max_clock MHz
        SM                                             : $max_clock MHz
        Memory                                         : $max_mem_clock MHz
        Video                                          : $max_video_clock MHz
    Max Customer Boost Clocks
        Graphics                                       : $max_clock MHz
    Clock Policy
        Auto Boost                                     : N/A
        Auto Boost Default                             : N/A"
}

q_fabric() {
    say "    Fabric
        State                                          : $fabric_state
        Status                                         : $fabric_status
        CliqueId                                       : $fabric_clique
        ClusterUUID                                    : $fabric_cluster
        Health
            Summary                                    : N/A
            Bandwidth                                  : N/A
            Route Recovery in progress                 : N/A
            Route Unhealthy                            : N/A
            Access Timeout Recovery                    : N/A
            Incorrect Configuration                    : N/A"
}

q_capabilities() {
    say "    Capabilities
        EGM                                            : disabled"
}
