
help() {
    say "NVIDIA System Management Interface -- v${driver:-580}

This one is vdev's: it shows simulated GPUs, as the files below $Directory describe them.

nvidia-smi [OPTION1 [ARG1]] [OPTION2 [ARG2]] ...

    -h,   --help                Print usage information and exit.
          --version             Print version information and exit.

  LIST OPTIONS:

    -L,   --list-gpus           Display a list of GPUs connected to the system.
    -B,   --list-excluded-gpus  Display a list of excluded GPUs in the system.

  SUMMARY OPTIONS:

    <no arguments>              Show a summary of GPUs connected to the system.

    [plus any of]

    -i,   --id=                 Target a specific GPU.
    -f,   --filename=           Log to a specified file, rather than to stdout.
    -l,   --loop=               Probe until Ctrl+C at specified second interval.
    -lms, --loop-ms=            Probe until Ctrl+C at specified millisecond interval.

  QUERY OPTIONS:

    -q -x                       Display GPU info as XML.

    [plus any of]

    -i, -f, -l, -lms

  SELECTIVE QUERY OPTIONS:

    --query-gpu=                Information about GPU (see --help-query-gpu).
    --query-compute-apps=       List of currently active compute processes (see --help-query-compute-apps).
    --query-accounted-apps=     List of accounted compute processes.
    --query-retired-pages=      List of device memory pages that have been retired.
    --query-remapped-rows=      Information about remapped rows.

    [mandatory]

    --format=                   Comma separated list of format options:
                                  csv - comma separated values (MANDATORY)
                                  noheader - skip the first line with column headers
                                  nounits - don't print units for numerical values
    and -i, -f, -l, -lms

  MORE:

    topo -m                     Displays how GPUs are connected.
    nvlink -s                   Displays the state of the NVLinks."
}

help_apps() {
    say 'List of valid properties to query for the switch "--query-compute-apps":

Section about Active Compute Processes properties
List of processes having compute context on the device.
'
    printf '"%s"\n\n' timestamp gpu_name gpu_bus_id gpu_serial gpu_uuid pid
    printf '"%s" or "%s"\n\n' process_name name used_gpu_memory used_memory
}

invalid() {
    refuse "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.
"
}

unknown() {
    refuse "ERROR: Option $1 is not recognized. Please run 'nvidia-smi -h'.
"
}

missing() {
    refuse "ERROR: Option $1 is missing its value. Please run 'nvidia-smi -h' for help.
"
}

# What the real tool has and this one leaves out.
left_out() {
    refuse "This nvidia-smi shows simulated GPUs and has no $1. Available are: the table (no arguments), -L, -q -x, topo -m, and --query-gpu=... and --query-compute-apps=... with --format=csv."
}

invalid_value() {
    refuse "ERROR: Option $Option has an invalid value: $Value. Please run 'nvidia-smi -h' for help.
"
}

denied() {
    look
    each_gpu count_gpu
    say "Unable to $1 for GPU $bus_id: Insufficient Permissions"
    say 'Terminating early due to previous error.'
    exit 4
}

# `mig`: who may not change the partitions may not list them either, and scripts look for these words.
denied_mig() {
    case $1 in
        -lgip | --list-gpu-instance-profiles) What='display GPU instance profiles' ;;
        -lgipp | --list-gpu-instance-possible-placements) What='display GPU instance possible placements' ;;
        -lgi | --list-gpu-instances) What='display GPU instances' ;;
        -lcip | --list-compute-instance-profiles) What='display compute instance profiles' ;;
        -lcipp | --list-compute-instance-possible-placements) What='display compute instance possible placements' ;;
        -lci | --list-compute-instances) What='display compute instances' ;;
        -cgi | --create-gpu-instance | --create-gpu-instance=*) What='create GPU instances' ;;
        -cci | --create-compute-instance | --create-compute-instance=*) What='create compute instances' ;;
        -dgi | --destroy-gpu-instance) What='destroy GPU instances' ;;
        -dci | --destroy-compute-instance) What='destroy compute instances' ;;
        *) unknown "${1:-mig}" ;;
    esac
    look
    say "Failed to $What: Insufficient Permissions"
    exit 4
}

# One task of several: $1 replaces the summary, or there are two that exclude each other.
task() {
    [ "$Task" = table ] || invalid
    Task=$1
}

is_number() {
    case $1 in
        '' | *[!0-9]*) return 1 ;;
    esac
}

Task=table
Ids=
Fields=
Format=
Display=
Loop=
No_header=
No_units=
Header_told=
Xml=
Output=
Plain=

case $1 in
    topo | nvlink)
        Task=$1
        shift
        [ $# -gt 0 ] || { help && exit 0; }
        case $Task$1 in
            topo-m | topo--matrix) Task=topology ;;
            nvlink-s | nvlink--status) Task=nvlink ;;
            *) unknown "$1" ;;
        esac
        shift
        ;;
    dmon | pmon) left_out "$1" ;;
    mig)
        shift
        while :; do
            case $1 in
                -i | -gi | -ci)
                    [ $# -gt 2 ] || missing "$1"
                    shift 2
                    ;;
                -h | --help) help && exit 0 ;;
                *) denied_mig "$1" ;;
            esac
        done
        ;;
    clocks | drain | vgpu | c2c | compute-policy | boost-slider | power-hint | base-clocks | conf-compute | gpm | pci)
        denied "change what $1 is about"
        ;;
esac

while [ $# -gt 0 ]; do
    Option=$1
    Value=
    case $Option in
        --*=*)
            Value=${Option#*=}
            Option=${Option%%=*}
            Given=yes
            ;;
        *) Given= ;;
    esac
    shift
    case $Option in
        -i | --id | -f | --filename | -d | --display | --format | --query-* | -lms | --loop-ms | -c | --compute-mode)
            if [ -z "$Given" ]; then
                [ $# -gt 0 ] || missing "$Option"
                Value=$1
                shift
            fi
            [ -n "$Value" ] || missing "$Option"
            ;;
        -l | --loop)
            if [ -z "$Given" ] && is_number "$1"; then
                Value=$1
                shift
            fi
            ;;
    esac
    case $Option in
        -h | --help) help && exit 0 ;;
        --help-query-gpu) help_gpu && exit 0 ;;
        --help-query-compute-apps) help_apps && exit 0 ;;
        --version) task version ;;
        -L | --list-gpus) task list ;;
        -B | --list-excluded-gpus) task excluded ;;
        -q | --query) task query ;;
        -x | --xml-format) Xml=yes ;;
        -u | --unit) refuse 'ERROR: No units were found' ;;
        -i | --id) Ids=$Value ;;
        -f | --filename) Output=$Value ;;
        -d | --display) Display=$Value ;;
        --query-gpu) task query_gpu && Fields=$Value ;;
        --query-compute-apps) task query_apps && Fields=$Value ;;
        --query-remapped-rows) task query_remapped && Fields=$Value ;;
        --query-accounted-apps) task query_none && Fields=$Value None=accounted_field ;;
        --query-retired-pages) task query_none && Fields=$Value None=retired_field ;;
        --format) Format=$Value ;;
        -l | --loop)
            Loop=${Value:-5}
            is_number "$Loop" || invalid_value
            ;;
        -lms | --loop-ms)
            is_number "$Value" || invalid_value
            Loop=$((Value / 1000)).$(printf '%03d' $((Value % 1000)))
            ;;
        -c | --compute-mode) denied 'set compute mode' ;;
        -pm | --persistence-mode) denied 'set persistence mode' ;;
        -pl | --power-limit) denied 'set power limit' ;;
        -e | --ecc-config) denied 'set ECC mode' ;;
        -p | --reset-ecc-errors) denied 'reset ECC errors' ;;
        -r | --gpu-reset) denied 'reset' ;;
        -ac | --applications-clocks | -rac | --reset-applications-clocks) denied 'change applications clocks' ;;
        -lgc | --lock-gpu-clocks | -rgc | --reset-gpu-clocks) denied 'change GPU clocks' ;;
        -lmc | --lock-memory-clocks | -rmc | --reset-memory-clocks) denied 'change memory clocks' ;;
        -mig | --multi-instance-gpu) denied 'set MIG mode' ;;
        -am | --accounting-mode) denied 'set accounting mode' ;;
        *) unknown "$Option" ;;
    esac
done

case $Task in
    query_*)
        [ -n "$Format" ] || refuse "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.
"
        Csv=
        Rest=$Format,
        while [ -n "$Rest" ]; do
            case ${Rest%%,*} in
                csv) Csv=yes ;;
                noheader) No_header=yes ;;
                nounits) No_units=yes ;;
                *) refuse "ERROR: Format option \"${Rest%%,*}\" is not recognized. Please run 'nvidia-smi -h' for help.
" ;;
            esac
            Rest=${Rest#*,}
        done
        [ -n "$Csv" ] || refuse "ERROR: Format option \"csv\" is missing. Please run 'nvidia-smi -h' for help.
"
        ;;
    *)
        [ -z "$Format" ] || invalid
        ;;
esac
[ "$Task" = query ] || [ -z "$Xml$Display" ] || invalid
if [ "$Task" = query ]; then
    [ -n "$Xml" ] || left_out '-q as text'
    Task=xml
fi

work() {
    look
    tell_time
    case $Task in
        excluded) ;;
        *) $Task ;;
    esac
}

[ -z "$Output" ] || exec >"$Output" || exit 255
work
while [ -n "$Loop" ]; do
    sleep "$Loop" || exit 255
    Header_told=yes
    work
done
exit 0
