
# -q: all that is known of each GPU; with -d the chosen sections alone.
query() {
    say "
==============NVSMI LOG==============

Timestamp                                              : $Now
Driver Version                                         : $driver
CUDA Version                                           : $cuda

Attached GPUs                                          : $Count"
    Open=
    each_gpu query_gpu_begins q_part_of
    query_gpu_ends
}

# A GPU's MIG devices come in the middle of it, and may be several: what is below them is printed when the next GPU
# begins, from the last file that was read of it.
query_gpu_begins() {
    query_gpu_ends
    [ -z "$File" ] || . "$File"
    Open=$File
    tell_units
    say "GPU $bus_id"
    [ -n "$Display" ] || q_identity
    Programs=
}

q_part_of() {
    [ -n "$Display" ] || q_part
    Open=$File
    q_remember "$mig_gi" "$mig_ci"
}

query_gpu_ends() {
    [ -n "$Open" ] || return
    File_next=$File
    . "$Open"
    [ -n "$mig_uuid" ] || q_remember N/A N/A
    tell_units
    if [ -n "$Display" ]; then
        query_chosen
    else
        q_accounting
        q_board
        q_gsp
        q_pci
        q_performance
        q_memory
        q_compute
        q_utilization
        q_encoder
        q_fbc
        q_ecc
        q_retired
        q_remapped
        q_temperature
        q_power
        q_clock
        q_fabric
        q_processes
        q_capabilities
    fi
    say ''
    File=$File_next
    Open=
}

# The units of values that may be unknown.
tell_units() {
    Fan=N/A Util=N/A Mem_util=N/A Enc_util=N/A Dec_util=N/A Idle_util=N/A Mem_temp=N/A Margin=N/A Least=N/A
    [ "$fan" = N/A ] || Fan="$fan %"
    [ "$util" = N/A ] || Util="$util %"
    [ "$mem_util" = N/A ] || Mem_util="$mem_util %"
    [ "$enc_util" = N/A ] || Enc_util="$enc_util %"
    [ "$dec_util" = N/A ] || Dec_util="$dec_util %"
    [ "$idle_util" = N/A ] || Idle_util="$idle_util %"
    [ "$mem_temp" = N/A ] || Mem_temp="$mem_temp C"
    [ "$temp_margin" = N/A ] || Margin="$temp_margin C"
    [ "$power_least" = N/A ] || Least="$power_least W"
}

query_chosen() {
    for Section in $Display; do
        case $Section in
            MEMORY) q_memory ;;
            UTILIZATION) q_utilization && q_samples GPU "$util" && q_samples Memory "$mem_util" ;;
            ECC) q_ecc ;;
            TEMPERATURE) q_temperature ;;
            POWER) q_power && q_samples_of Power "$power W" ;;
            CLOCK) q_clock && q_samples_of 'SM Clock' "$clock MHz" && q_samples_of 'Memory Clock' "$mem_clock MHz" ;;
            COMPUTE) q_compute ;;
            PIDS) q_processes ;;
            PERFORMANCE) q_performance ;;
            PAGE_RETIREMENT) q_retired ;;
            ACCOUNTING) q_accounting ;;
            ENCODER_STATS) q_encoder ;;
            FBC_STATS) q_fbc ;;
            ROW_REMAPPER) q_remapped ;;
            GSP_FIRMWARE_VERSION) q_gsp ;;
            SUPPORTED_CLOCKS) q_supported ;;
            SUPPORTED_GPU_TARGET_TEMP) say '    GPU Target Temperature Min                         : N/A' ;;
            VOLTAGE) say '    Voltage                                            : N/A' ;;
            POWER_SMOOTHING) say '    Power Smoothing                                    : N/A' ;;
            POWER_PROFILES) say '    Workload Power Profiles                            : N/A' ;;
        esac
    done
}

# Upper-case $1 of the -d option's values, or say which is none.
choose_sections() {
    Display=
    Rest=$1,
    while [ -n "$Rest" ]; do
        Section=${Rest%%,*}
        Rest=${Rest#*,}
        for Known in MEMORY UTILIZATION ECC TEMPERATURE POWER CLOCK COMPUTE PIDS PERFORMANCE SUPPORTED_CLOCKS \
            PAGE_RETIREMENT ACCOUNTING ENCODER_STATS SUPPORTED_GPU_TARGET_TEMP VOLTAGE FBC_STATS ROW_REMAPPER \
            GSP_FIRMWARE_VERSION POWER_SMOOTHING POWER_PROFILES ''; do
            [ "$Section" != "$Known" ] || break
        done
        [ -n "$Known" ] || refuse "ERROR: Option -d has an invalid value: $Section. Please run 'nvidia-smi -h' for help.
"
        Display="$Display $Section"
    done
}

q_samples() {
    Text="$2 %"
    [ "$2" != N/A ] || Text=N/A
    q_samples_of "$1 Utilization" "$Text"
}

# One sample is all that there is.
q_samples_of() {
    say "    $1 Samples"
    printf '%-55s: %s\n' '        Duration' '1.00 sec' '        Number of Samples' 1 '        Max' "$2" \
        '        Min' "$2" '        Avg' "$2"
}

q_supported() {
    printf '%s\n' '    Supported Clocks'
    printf '%-55s: %s\n' '        Memory' "$max_mem_clock MHz" '            Graphics' "$max_clock MHz"
}

q_remember() {
    tell_process
    [ -z "$Process" ] || Programs="$Programs
        GPU instance ID                   : $1
        Compute instance ID               : $2
        Process ID                        : $Pid
            Type                          : C
            Name                          : $Process
            Used GPU Memory               : $process_memory MiB"
}

q_processes() {
    if [ -n "$Programs" ]; then
        say "    Processes$Programs"
    else
        say '    Processes                                          : None'
    fi
}
