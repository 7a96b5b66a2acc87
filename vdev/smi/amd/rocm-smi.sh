
# What is told is kept by device and printed at the end: as JSON, as CSV, or section by section as text.
Tab='	'
Newline='
'

# Keep a fact of the device: its name and its value.
fact() {
    case $Format in
        json)
            escape "$2"
            Facts="$Facts${Facts:+, }\"$1\": \"$Escaped\""
            ;;
        csv)
            Names="$Names,$1"
            Facts="$Facts,$2"
            ;;
        *) say "GPU[$Index]$Tab$Tab: $1: $2" ;;
    esac
}

# The words $1 in the middle of a line of equals signs.
headline() {
    Words=${1:+ $1 }
    Left=$(((Width - ${#Words}) / 2))
    Right=$((Width - ${#Words} - Left))
    Signs='=========================================================================================================================='
    printf '%.*s%s%.*s\n' "$Left" "$Signs" "$Words" "$Right" "$Signs"
}

section_id() {
    fact 'Device Name' "$name"
    fact 'Device ID' "$device_id"
    fact 'Device Rev' 0x00
    fact 'Subsystem ID' "$device_id"
    fact GUID "$guid"
}

section_uniqueid() {
    fact 'Unique ID' "$unique_id"
}

section_use() {
    fact 'GPU use (%)' "$gfx"
}

section_memuse() {
    fact 'GPU Memory Allocated (VRAM%)' "$vram_percent"
    fact 'GPU Memory Read/Write Activity (%)' "$umc"
}

section_power() {
    fact 'Average Graphics Package Power (W)' "$power.0"
    fact 'Current Socket Graphics Package Power (W)' "$power.0"
}

section_maxpower() {
    fact 'Max Graphics Package Power (W)' "$power_cap.0"
}

section_temp() {
    fact 'Temperature (Sensor edge) (C)' "$temp.0"
    fact 'Temperature (Sensor junction) (C)' "$temp.0"
    fact 'Temperature (Sensor memory) (C)' "$mem_temp.0"
}

section_meminfo() {
    fact 'VRAM Total Memory (B)' "$vram_total_bytes"
    fact 'VRAM Total Used Memory (B)' "$vram_used_bytes"
}

section_productname() {
    fact 'Card Series' "$name"
    fact 'Card Model' "$device_id"
    fact 'Card Vendor' 'Advanced Micro Devices, Inc. [AMD/ATI]'
    fact 'Card SKU' "$sku"
    fact 'Subsystem ID' "$device_id"
    fact 'Device Rev' 0x00
    fact 'Node ID' "$node_id"
    fact GUID "$guid"
    fact 'GFX Version' "$gfx_version"
}

section_bus() {
    fact 'PCI Bus' "$bdf"
}

section_serial() {
    fact 'Serial Number' "$serial"
}

section_clocks() {
    fact 'mclk clock speed:' "(${mem_clock}Mhz)"
    fact 'sclk clock speed:' "(${clock}Mhz)"
}

section_computepartition() {
    fact 'Compute Partition' "$compute_partition"
}

section_memorypartition() {
    fact 'Memory Partition' "$memory_partition"
}

section_driverversion() {
    Driver=$driver
}

section_fan() {
    :
}

ask() {
    Sections="$Sections $1"
}

title_of() {
    case $1 in
        id) Title=ID ;;
        uniqueid) Title='Unique ID' ;;
        use) Title='% time GPU is busy' ;;
        memuse) Title='Current Memory Use' ;;
        power) Title='Power Consumption' ;;
        maxpower) Title='Power Cap' ;;
        temp) Title=Temperature ;;
        meminfo) Title='Memory Usage (Bytes)' ;;
        productname) Title='Product Info' ;;
        bus) Title='PCI Bus ID' ;;
        serial) Title='Serial Number' ;;
        clocks) Title='Current clock frequencies' ;;
        computepartition) Title='Current Compute Partition' ;;
        memorypartition) Title='Current Memory Partition' ;;
        driverversion) Title='Version of System Component' ;;
        fan) Title='Current Fan Metric' ;;
    esac
}

one_fact_card() {
    Facts=
    Names=device
    for Section in $Sections; do
        "section_$Section"
    done
    case $Format in
        json)
            [ -z "$Facts" ] || All="$All${All:+, }\"card$Index\": {$Facts}"
            ;;
        csv)
            [ -n "$Header" ] || Header=$Names
            Lines="$Lines$Newline""card$Index$Facts"
            ;;
    esac
}

# The summary that `rocm-smi` alone shows.
concise() {
    Width=121
    [ -n "$Format" ] || say ''
    [ -n "$Format" ] || say ''
    headline 'ROCm System Management Interface'
    headline 'Concise Info'
    say 'Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    Fan  Perf  PwrCap  VRAM%  GPU%  
              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)                                                  '
    headline ''
    each_gpu concise_gpu
    headline ''
    headline 'End of ROCm SMI Log'
}

concise_gpu() {
    printf '%-8s%-6s%-17s%s°C%*s%-10s%-20s%-8s%-8s%-5s%-6s%-8s%-7s%-6s\n' "$Index" "$node_id" \
        "$(printf '%-10s%-5s' "$device_id," "$guid")" "$temp.0" $((8 - ${#temp})) '' "$power.0W" \
        "$memory_partition, $compute_partition, $partition_id" "${clock}Mhz" "${mem_clock}Mhz" '0%' auto "$power_cap.0W" \
        "$vram_percent%" "$gfx%"
}

Ids=
Format=
Sections=
All=
while [ $# -gt 0 ]; do
    case $1 in
        --json) Format=json ;;
        --csv) Format=csv ;;
        -d | --device)
            while [ $# -gt 1 ] && [ "${2#-}" = "$2" ]; do
                Ids="$Ids $2"
                shift
            done
            ;;
        -i | --showid) ask id ;;
        --showuniqueid) ask uniqueid ;;
        -u | --showuse) ask use ;;
        --showmemuse) ask memuse ;;
        -P | --showpower) ask power ;;
        -M | --showmaxpower) ask maxpower ;;
        -t | --showtemp) ask temp ;;
        --showmeminfo)
            ask meminfo
            while [ $# -gt 1 ] && [ "${2#-}" = "$2" ]; do
                case $2 in
                    vram | all) ;;
                    vis_vram | gtt) ;;
                    *)
                        say "ERROR: Invalid memory type $2: expected vram, vis_vram, gtt or all" >&2
                        exit 2
                        ;;
                esac
                shift
            done
            ;;
        --showproductname) ask productname ;;
        -b | --showbus) ask bus ;;
        --showserial) ask serial ;;
        -c | --showclocks | -g | --showgpuclocks) ask clocks ;;
        --showcomputepartition) ask computepartition ;;
        --showmemorypartition) ask memorypartition ;;
        --showdriverversion) ask driverversion ;;
        -f | --showfan) ask fan ;;
        -a | --showallinfo)
            Sections=' id uniqueid temp fan clocks maxpower power use memuse serial bus productname'
            ;;
        --loglevel) shift ;;
        --alldevices) ;;
        -h | --help)
            say "usage: rocm-smi [-h] [-d DEVICE [DEVICE ...]] [--alldevices] [-i] [--showproductname] [--showuniqueid] [-b] [--showserial]
                [--showdriverversion] [-t] [-f] [-c] [-P] [-M] [-u] [--showmemuse] [--showmeminfo TYPE [TYPE ...]]
                [--showcomputepartition] [--showmemorypartition] [-a] [--json] [--csv]

This one is vdev's: it shows simulated GPUs."
            exit 0
            ;;
        -V | --version)
            each_gpu :
            say "ROCM-SMI version: 4.0.0+unknown
ROCM-SMI-LIB version: 7.7.0"
            exit 0
            ;;
        *)
            say "usage: rocm-smi [-h] [options]
rocm-smi: error: unrecognized arguments: $1" >&2
            exit 2
            ;;
    esac
    shift
done

Chosen=0
Lost=
each_gpu count_gpu
if [ "$Chosen" = 0 ] || [ -n "$Lost" ]; then
    [ -z "$Lost" ] || say "ERROR: GPU[${Lost# }]$Tab: does not answer: it has fallen off the bus" >&2
    [ -n "$Lost" ] || say 'ERROR: No AMD GPUs specified' >&2
    exit 1
fi
if [ -z "$Sections" ]; then
    [ -n "$Format" ] || { concise && exit 0; }
    Sections=' temp power computepartition memorypartition memuse use'
fi
Driver=
Header=
Lines=
case $Format in
    json)
        each_gpu one_fact_card
        [ -z "$Driver" ] || All="$All${All:+, }\"system\": {\"Driver version\": \"$Driver\"}"
        say "{$All}"
        ;;
    csv)
        each_gpu one_fact_card
        say "$Header$Lines"
        ;;
    *)
        Width=90
        say ''
        say ''
        headline 'ROCm System Management Interface'
        for Asked in $Sections; do
            title_of "$Asked"
            headline "$Title"
            each_gpu "section_$Asked"
            [ -z "$Driver" ] || say "Driver version: $Driver"
            Driver=
            headline ''
        done
        headline 'End of ROCm SMI Log'
        say ''
        ;;
esac
exit 0
