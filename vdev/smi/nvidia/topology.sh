
# topo -m: how GPUs reach each other. Same NUMA node: NODE; another, or unknown: SYS.
topology() {
    Tab='	'
    Names=
    Others=
    each_gpu topology_name
    Bold=
    Plain=
    if [ -t 1 ]; then
        Bold=$(printf '\033[4m')
        Plain=$(printf '\033[0m')
    fi
    say "$Tab$Bold${Names#"$Tab"}${Tab}CPU Affinity${Tab}NUMA Affinity${Tab}GPU NUMA ID$Plain"
    each_gpu topology_row
    say '
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks'
}

topology_name() {
    Names="$Names${Tab}GPU$Index"
    Others="$Others $uuid=$numa"
}

topology_row() {
    Row="GPU$Index"
    for Other in $Others; do
        Peer=${Other%%=*}
        Way=SYS
        [ -z "$numa" ] || [ "$numa" != "${Other#*=}" ] || Way=NODE
        case " $nvlinks " in
            *" $Peer="*)
                Way=${nvlinks#*"$Peer="}
                Way=NV${Way%% *}
                ;;
        esac
        [ "$Peer" != "$uuid" ] || Way=' X '
        Row="$Row$Tab$Way"
    done
    Cpus=
    for List in "/sys/devices/system/node/node${numa:-0}/cpulist" /sys/devices/system/cpu/online; do
        [ -n "$Cpus" ] || [ ! -r "$List" ] || read -r Cpus <"$List"
    done
    say "$Row$Tab${Cpus:-N/A}$Tab${numa:-N/A}$Tab${Tab}N/A"
}

# dmon and pmon: a line for each GPU or program, again and again.
monitor() {
    say "$2"
    while :; do
        tell_time
        each_gpu "$1" "$3"
        Times=$((Times - 1))
        [ "$Times" != 0 ] || return 0
        sleep "${Loop:-1}" || exit 255
    done
}

# The value in $1, or a dash.
or_dash() {
    Value=$1
    [ "$Value" != N/A ] || Value=-
}

dmon_gpu() {
    whole "$power"
    printf '%5s%7s' "$Index" "$Whole"
    for Value in "$temp" "$mem_temp" "$util" "$mem_util" "$enc_util" "$dec_util" "$idle_util" "$idle_util" "$mem_clock" \
        "$clock"; do
        or_dash "$Value"
        printf '%7s' "$Value"
    done
    say ' '
}

pmon_gpu() {
    [ -n "$mig_uuid" ] || pmon_program "$util" "$mem_util"
}

pmon_part() {
    pmon_program - -
}

pmon_program() {
    tell_process
    if [ -z "$Process" ]; then
        set -- - -
        Pid=-
        Type=-
        Process=-
    else
        Type=C
    fi
    printf '%5s%11s%6s%7s%7s      -      -      -      -    %-15s\n' "$Index" "$Pid" "$Type" "$1" "$2" "${Process##*/}"
}

nvlink() {
    each_gpu nvlink_gpu
}

nvlink_gpu() {
    say "GPU $Index: $name (UUID: $uuid)"
    if [ "$mig" = Enabled ]; then
        say 'Nvlink queries are not supported for Devices in MIG mode'
        return
    fi
    Link=0
    while [ "$Link" -lt "${links:-0}" ]; do
        printf '\t Link %s: %s GB/s\n' "$Link" "$link_speed"
        Link=$((Link + 1))
    done
}
