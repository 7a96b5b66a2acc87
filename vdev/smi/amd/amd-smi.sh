
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
}

monitor() {
    each_gpu :
    say 'GPU  XCP  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%   ENC%   DEC%      VRAM_USAGE'
    each_gpu monitor_row
}

monitor_row() {
    printf '%3s%5s%5s W%5s °C%5s °C%6s MHz%5s %%%5s %%%7s%7s%8s/%s MB\n' "$Index" "$partition_id" "$power" "$temp" \
        "$mem_temp" "$clock" "$gfx" "$umc" N/A N/A "$vram_used" "$vram_total"
}

Ids=
Flags=
Format=
Output=
Command=table
case $1 in
    version | list | static | metric | process | monitor)
        Command=$1
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    --version)
        Command=version
        shift
        ;;
    '' | -*) ;;
    *)
        say "AMDSMI_STATUS_INVALID_COMMAND: Command '$1' is invalid. Run 'amd-smi --help' for a list of commands." >&2
        say 'Error code: -1' >&2
        exit 255
        ;;
esac
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help)
            usage
            exit 0
            ;;
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
        -e)
            Flags="$Flags $1"
            ;;
        -[a-zA-Z] | --[a-z]*)
            case $Command$1 in
                static-[abdilpuvBIV] | static--asic | static--bus | static--driver | static--vbios | static--ifwi) ;;
                static--limit | static--partition | static--numa | static--vram | static--board) ;;
                metric-[cefkmptuEP] | metric--usage | metric--power | metric--clock | metric--temperature) ;;
                metric--pcie | metric--ecc | metric--ecc-blocks | metric--fan | metric--energy | metric--mem-usage) ;;
                process-[GenpP] | process--general | process--engine | monitor-[a-z]) ;;
                *)
                    say "AMDSMI_STATUS_INVALID_PARAMETER: Parameter '$1' is invalid. Run 'amd-smi $Command -h' for more info." >&2
                    say 'Error code: -2' >&2
                    exit 254
                    ;;
            esac
            Flags="$Flags $1"
            ;;
        *)
            say "AMDSMI_STATUS_INVALID_PARAMETER: Parameter '$1' is invalid. Run 'amd-smi $Command -h' for more info." >&2
            say 'Error code: -2' >&2
            exit 254
            ;;
    esac
    shift
done

Chosen=0
Lost=
each_gpu count_gpu
if [ "$Chosen" = 0 ]; then
    if [ -n "$Ids" ]; then
        say "AMDSMI_STATUS_DEVICE_NOT_FOUND: Device '${Ids# }' is not found. Run 'amd-smi list' for a list of devices." >&2
        say 'Error code: -3' >&2
        exit 253
    fi
    say 'ERROR:root:Unable to detect any GPU devices, check amdgpu version and module status (sudo modprobe amdgpu)' >&2
    exit 255
fi
if [ -n "$Lost" ]; then
    say "AMDSMI_STATUS_NO_DATA: GPU$Lost does not answer: it has fallen off the bus" >&2
    exit 34
fi
[ -z "$Output" ] || exec >"$Output" || exit 255
case $Command$Format in
    listcsv) list_csv ;;
    *csv)
        say "AMDSMI_STATUS_INVALID_PARAMETER_VALUE: --csv is not told of '$Command' here. Use --json." >&2
        exit 251
        ;;
    version* | table* | monitor*) $Command ;;
    static* | metric*) devices "$Command" gpu_data ;;
    *) devices "$Command" ;;
esac
exit 0
