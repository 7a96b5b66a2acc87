#!/bin/sh
# vdev's amd-smi for simulated GPUs. It needs only a POSIX shell. It prints values and texts from the files below
# $Directory, which vdev keeps up to date. Variables in lower case come from these files; the script's own variables begin
# with a capital letter.

Directory=${VDEV_SMI_DIR:-/run/vdev/smi}
Static='asic bus vbios limit driver board vram numa partition'
Metric='usage power clock temperature pcie ecc ecc_blocks fan energy mem_usage'

# Print $1 as it is. echo would interpret backslashes.
say() {
    printf '%s\n' "$1"
}

# Print $1 as an error, and exit with code $2.
fail() {
    say "$1" >&2
    exit "$2"
}

# Run $1 for each chosen device, with its data in variables.
each_gpu() {
    Index=-1
    for File in "$Directory"/*/amd; do
        [ -r "$File" ] || continue
        . "$File"
        Index=$((Index + 1))
        case " $Ids " in
            '  ' | *" $Index "* | *" $bdf "* | *" $uuid "*) eval "$1" ;;
        esac
    done
}

count_gpu() {
    Chosen=$((Chosen + 1))
    [ -z "$lost" ] || Lost="$Lost $Index"
}

# Set the program that uses the memory: process 1, which is all that a container sees. A name that JSON would have to
# quote is not shown.
set_process() {
    Process=
    if [ -r "${VDEV_SMI_PROC:-/proc}/1/comm" ]; then
        read -r Process <"${VDEV_SMI_PROC:-/proc}/1/comm" 2>/dev/null
    fi
    case $Process in
        '' | *[\"\\]*) Process=python3 ;;
    esac
}

# Print the text $1 of a device. It is a format of printf for the values that differ between containers: the number of the
# device (twice) and the program.
show() {
    printf "$1" "$Index" "$Index" "$Process"
}

# Print the chosen sections of each device.
sections() {
    First=yes
    if [ "$Format" = json ]; then
        case $Command in
            static | metric) say '{"gpu_data": [' ;;
            *) say '[' ;;
        esac
        each_gpu gpu_as_json
        case $Command in
            static | metric) say ']}' ;;
            *) say ']' ;;
        esac
    else
        each_gpu gpu_as_text
    fi
}

gpu_as_json() {
    [ -n "$First" ] || say ','
    First=
    printf '    {\n        "gpu": %s' "$Index"
    for Section in $Sections; do
        Json=
        eval "Json=\${${Command}_${Section}_json}"
        say ','
        show "$Json"
    done
    printf '\n    }\n'
}

gpu_as_text() {
    say "GPU: $Index"
    for Section in $Sections; do
        Shown=
        eval "Shown=\${${Command}_${Section}_text}"
        show "$Shown"
    done
    say ''
}

version() {
    each_gpu :
    if [ "$Format" = json ]; then show "$version_json"; else show "$version_text"; fi
}

# The summary that `amd-smi` alone shows.
table() {
    each_gpu :
    Bar=------------------------------------------------------------------------------
    say "+$Bar+"
    show "$table_head"
    say '| VBIOS version: N/A                                                           |
| Platform: Linux Baremetal                                                    |
|-------------------------------------+----------------------------------------|
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
|=====================================+========================================|'
    each_gpu table_gpu
    printf '+%.37s+%.40s+\n' "$Bar" "$Bar"
    say "+$Bar+"
    say '| Processes:                                                                   |
|  GPU        PID  Process Name          GTT_MEM  VRAM_MEM  MEM_USAGE     CU % |
|==============================================================================|'
    Any=
    each_gpu 'Any=$Any$table_program; show "$table_program"'
    [ -n "$Any" ] || say '|  No running processes found                                                  |'
    say "+$Bar+"
}

table_gpu() {
    [ "$Index" = 0 ] || printf '|%.37s+%.40s|\n' "$Bar" "$Bar"
    show "$table_rows"
}

monitor() {
    say 'GPU  XCP  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%   ENC%   DEC%      VRAM_USAGE'
    each_gpu 'show "$monitor_row"'
}

list_csv() {
    say 'gpu,gpu_bdf,gpu_uuid,kfd_id,node_id,partition_id'
    each_gpu 'say "$Index,$list_csv"'
}

usage() {
    say 'usage: amd-smi [-h]  ...

This one is vdev'"'"'s: it shows simulated GPUs.

AMD-SMI Commands:
    version           Display version information
    list              List GPU information
    static            Gets static information about the specified GPU
    metric            Gets metric/performance information about the specified GPU
    process           Lists general process information running on the specified GPU
    monitor           Monitor metrics for target devices

Each of them takes -g/--gpu GPU..., --json and --file FILE; static and metric also the flags of their sections.'
    exit 0
}

Ids=
Chosen_sections=
Format=
Output=
Command=table
case $1 in
    version | list | static | metric | process | monitor)
        Command=$1
        shift
        ;;
    -h | --help) usage ;;
    --version)
        Command=version
        shift
        ;;
    '' | -*) ;;
    *)
        fail "AMDSMI_STATUS_INVALID_COMMAND: Command '$1' is invalid. Run 'amd-smi --help' for a list of commands.
Error code: -1" 255
        ;;
esac
while [ $# -gt 0 ]; do
    Section=
    case $1 in
        -h | --help) usage ;;
        --json) Format=json ;;
        --csv) Format=csv ;;
        --file)
            shift
            Output=$1
            ;;
        --file=*) Output=${1#*=} ;;
        --loglevel) shift ;;
        -g | --gpu)
            while [ $# -gt 1 ] && [ "${2#-}" = "$2" ]; do
                [ "$2" = all ] || Ids="$Ids $2"
                shift
            done
            ;;
        *)
            case $Command$1 in
                list-e) Section=enumeration ;;
                static-a | static--asic) Section=asic ;;
                static-b | static--bus) Section=bus ;;
                static-[VI] | static--vbios | static--ifwi) Section=vbios ;;
                static-l | static--limit) Section=limit ;;
                static-d | static--driver) Section=driver ;;
                static-B | static--board) Section=board ;;
                static-v | static--vram) Section=vram ;;
                static-u | static--numa) Section=numa ;;
                static-p | static--partition) Section=partition ;;
                metric-u | metric--usage) Section=usage ;;
                metric-p | metric--power) Section=power ;;
                metric-c | metric--clock) Section=clock ;;
                metric-t | metric--temperature) Section=temperature ;;
                metric-P | metric--pcie) Section=pcie ;;
                metric-e | metric--ecc) Section=ecc ;;
                metric-k | metric--ecc-blocks) Section=ecc_blocks ;;
                metric-f | metric--fan) Section=fan ;;
                metric-E | metric--energy) Section=energy ;;
                metric-m | metric--mem-usage) Section=mem_usage ;;
                process-[GenpP] | process--general | process--engine | monitor-[a-z]) ;;
                *)
                    fail "AMDSMI_STATUS_INVALID_PARAMETER: Parameter '$1' is invalid. Run 'amd-smi $Command -h' for more info.
Error code: -2" 254
                    ;;
            esac
            Chosen_sections="$Chosen_sections $Section"
            ;;
    esac
    shift
done
case $Command in
    static) Sections=${Chosen_sections:-$Static} ;;
    metric) Sections=${Chosen_sections:-$Metric} ;;
    list) Sections="device$Chosen_sections" ;;
    *) Sections=processes ;;
esac

Chosen=0
Lost=
each_gpu count_gpu
if [ "$Chosen" = 0 ]; then
    [ -z "$Ids" ] || fail "AMDSMI_STATUS_DEVICE_NOT_FOUND: Device '${Ids# }' is not found. Run 'amd-smi list' for a list of devices.
Error code: -3" 253
    fail 'ERROR:root:Unable to detect any GPU devices, check amdgpu version and module status (sudo modprobe amdgpu)' 255
fi
[ -z "$Lost" ] || fail "AMDSMI_STATUS_NO_DATA: GPU$Lost does not answer: it has fallen off the bus" 34
[ -z "$Output" ] || exec >"$Output" || exit 255
set_process
case $Command$Format in
    listcsv) list_csv ;;
    *csv) fail "AMDSMI_STATUS_INVALID_PARAMETER_VALUE: '$Command' has no --csv here. Use --json." 251 ;;
    version* | table* | monitor*) $Command ;;
    *) sections ;;
esac
exit 0
