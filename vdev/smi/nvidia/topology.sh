
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
