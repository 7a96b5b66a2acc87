#!/bin/sh
# vdev's nvidia-smi for simulated GPUs. It needs only a POSIX shell. It prints values and texts from the files below
# $Directory, which vdev keeps up to date. Variables in lower case come from these files; the script's own variables begin
# with a capital letter.

# The functions field and help_fields.

Directory=${VDEV_SMI_DIR:-/run/vdev/smi}
Proc=${VDEV_SMI_PROC:-/proc}/1

# Print $1 as it is. echo would interpret backslashes.
say() {
    printf '%s\n' "$1"
}

# Whether the image has a program.
have() {
    command -v "$1" >/dev/null 2>&1
}

# Print the text $1 of a device. It is a format of printf for the values that differ between containers: number, number of
# the MIG device, program, and the end of the program's name.
show() {
    printf "$1" "$Index" "$Part" "$Process" "$Short"
}

# Run $1 for each GPU, $2 for each MIG device, and $3 for each device that programs can use: a MIG device, or a GPU without
# MIG devices. The data is in variables.
each_gpu() {
    Index=-1
    Last=
    for File in "$Directory"/*/nvidia; do
        [ -r "$File" ] || continue
        . "$File"
        if [ "$uuid" != "$Last" ]; then
            Last=$uuid
            Index=$((Index + 1))
            Part=0
            Wanted=
            if is_wanted; then
                Wanted=yes
                eval "$1"
            fi
        fi
        if [ -n "$Wanted" ]; then
            [ -z "$mig_uuid" ] || eval "${2:-}"
            eval "${3:-}"
        fi
        [ -z "$mig_uuid" ] || Part=$((Part + 1))
    done
}

# Whether -i selects the GPU, by number, UUID, serial number or PCI address.
is_wanted() {
    [ -n "$Ids" ] || return 0
    for Id in "$Index" "$uuid" "$serial" "$bus_id" "${bus_id#0000}" "${bus_id#00000000:}"; do
        case ",$Ids," in *",$Id,"*) return 0 ;; esac
    done
    return 1
}

count_gpu() {
    Chosen=$((Chosen + 1))
    [ -z "$lost" ] || Lost="Unable to determine the device handle for GPU$Index: ${bus_id#0000}: $lost.  Reboot the system to recover this GPU"
}

# Count the GPUs, and exit with an error if there are none or one is lost.
look() {
    Chosen=0
    Lost=
    each_gpu count_gpu
    Count=$((Index + 1))
    if [ "$Count" = 0 ]; then
        for Place in "$Directory"/*; do
            if [ -d "$Place" ] && ! [ -e "$Place/amd" ]; then
                say "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running."
                say ''
                exit 9
            fi
        done
    fi
    if [ -n "$Lost" ]; then
        say "$Lost"
        [ "$Chosen" -gt 1 ] || say 'No devices were found'
        exit 15
    fi
    if [ "$Chosen" = 0 ]; then
        say 'No devices were found'
        exit 6
    fi
    set_time
    set_process
}

# Set the time of this call in both forms, or the time of the data if the image has no `date`.
set_time() {
    Now=$written
    Now_csv=$written_csv
    if have date; then
        Now=$(LC_ALL=C date '+%a %b %e %H:%M:%S %Y')
        Now_csv="$(LC_ALL=C date '+%Y/%m/%d %H:%M:%S').${written_csv##*.}"
    fi
}

# Set the program that uses the memory: process 1, which is all that a container sees. A name that XML would have to
# quote is not shown.
set_process() {
    Process=
    if [ -r "$Proc/cmdline" ]; then
        read -r Process <"$Proc/comm" 2>/dev/null
        Link=$(readlink "$Proc/exe" 2>/dev/null) && [ -n "$Link" ] && Process=$Link
    fi
    case $Process in
        '' | *[\<\>\&]*) Process=python3 ;;
    esac
    Short=$Process
    while [ ${#Short} -gt 32 ]; do
        Short=...${Short#????}
    done
}

refuse() {
    say "$1"
    exit 2
}

invalid() {
    refuse "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.
"
}

unknown() {
    refuse "ERROR: Option $1 is not recognized. Please run 'nvidia-smi -h'.
"
}

# Refuse an option that only the real tool has.
left_out() {
    refuse "This nvidia-smi shows simulated GPUs and has no $1. Available are: the table (no arguments), -L, -q -x, topo -m, and --query-gpu=... and --query-compute-apps=... with --format=csv."
}

# Refuse operations that a container may not do: change a device, or list the partitions of others.
denied() {
    look
    say "Unable to do $1 for GPU $bus_id: Insufficient Permissions"
    exit 4
}

help() {
    say "NVIDIA System Management Interface -- v${driver:-580}, for simulated GPUs of vdev

nvidia-smi                      Show a summary of the GPUs.
nvidia-smi -L                   List the GPUs and MIG devices.
nvidia-smi -q -x                Show all values as XML.
nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits]
                                Show these fields; see --help-query-gpu. In the same way: --query-compute-apps,
                                --query-remapped-rows, --query-accounted-apps, --query-retired-pages.
nvidia-smi topo -m              Show how the GPUs are connected.
nvidia-smi nvlink -s            Show the NVLinks.
nvidia-smi --version            Show the versions.

-i, --id=ID[,ID...]             Only these GPUs, by number, UUID, serial number or PCI address.
-f, --filename=FILE             Write to this file.
-l, --loop=SECONDS, -lms, --loop-ms=MILLISECONDS
                                Repeat until Ctrl+C."
}

# The summary in the form of driver 550 and later.
table() {
    Line='-----------------------------------------'
    Wide="+$Line------------------------------------------------+"
    printf '%-31s\n' "$Now"
    say "$Wide"
    show "$table_head"
    Cut=
    each_gpu 'show "$table_rows"' 'Cut=yes'
    if [ -n "$Cut" ]; then
        say ''
        say "$Wide"
        say '| MIG devices:                                                                            |'
        show "$mig_head"
        each_gpu : 'show "$mig_rows"'
    fi
    say ''
    say "$Wide"
    say '| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|'
    Any=
    each_gpu : : 'Any=$Any$table_program; show "$table_program"'
    [ -n "$Any" ] || say '|  No running processes found                                                             |'
    say "$Wide"
}

list() {
    each_gpu 'show "$list_row"' 'show "$mig_list_row"'
}

nvlink() {
    each_gpu 'show "$list_row"; show "$nvlink_rows"'
}

version() {
    printf '%-20s: %s\n' 'NVIDIA-SMI version' "$driver" 'NVML version' "${driver%.*}" 'DRIVER version' "$driver" \
        'CUDA Version' "$cuda"
}

# -q -x: the log as XML. The MIG devices of a GPU are in the middle of its text, and its programs at the end.
xml() {
    show "$xml_head"
    say "	<timestamp>$Now</timestamp>"
    show "$xml_driver"
    say "	<attached_gpus>$Count</attached_gpus>"
    Rest=
    each_gpu 'xml_gpu_ends; show "$xml_gpu"; Rest=$xml_rest; Programs=' 'show "$xml_mig"' xml_program
    xml_gpu_ends
    say '</nvidia_smi_log>'
}

xml_program() {
    [ "$process_memory" = 0 ] || Programs="$Programs
			<process_info>
				<gpu_instance_id>$mig_gi</gpu_instance_id>
				<compute_instance_id>$mig_ci</compute_instance_id>
				<pid>1</pid>
				<type>C</type>
				<process_name>$Process</process_name>
				<used_memory>$process_memory MiB</used_memory>
			</process_info>"
}

xml_gpu_ends() {
    [ -n "$Rest" ] || return
    show "$Rest"
    say "		<processes>$Programs
		</processes>
	</gpu>"
}

# --query-...: $Fields of each GPU or program as comma-separated values.
query() {
    Row=
    each_field header
    [ -n "$No_header$Header_shown" ] || say "$Row"
    case $Query in
        gpu | remapped-rows) each_gpu query_row ;;
        compute-apps) each_gpu : : '[ "$process_memory" = 0 ] || query_row' ;;
    esac
}

query_row() {
    Row=
    each_field value
    say "$Row"
}

# Call $1 for each of $Fields, with its name, unit and value in Head, Unit and Value. The function `field` is generated
# from nvidia-fields.txt.
each_field() {
    Rest=$Fields,
    while [ -n "$Rest" ]; do
        Field=${Rest%%,*}
        Rest=${Rest#*,}
        while [ "$Field" != "${Field# }" ]; do Field=${Field# }; done
        while [ "$Field" != "${Field% }" ]; do Field=${Field% }; done
        Plain=
        field "$Query:$Field" || refuse "Field \"$Field\" is not a valid field to query.
"
        $1
        Row=$Row${Rest:+, }
    done
}

header() {
    Row=$Row$Head${Unit:+ [$Unit]}
}

value() {
    case $Value$Plain in
        N/A) Value='[N/A]' ;;
        '['*) ;;
        *) [ -z "$Unit" ] || [ -n "$No_units" ] || Value="$Value $Unit" ;;
    esac
    Row=$Row$Value
}

# topo -m: the connections between GPUs. NODE for GPUs of one NUMA node, SYS for others.
topology() {
    Tab='	'
    Names=
    Others=
    each_gpu topology_name
    say "$Names${Tab}CPU Affinity${Tab}NUMA Affinity${Tab}GPU NUMA ID"
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

# --- arguments ---

# Set the task. There can be only one.
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
Loop=
No_header=
No_units=
Header_shown=
Xml=
Output=

case $1 in
    topo | nvlink)
        case $1$2 in
            topo-m | topo--matrix) Task=topology ;;
            nvlink-s | nvlink--status) Task=nvlink ;;
            topo | nvlink) help && exit 0 ;;
            *) unknown "$2" ;;
        esac
        shift 2
        ;;
    dmon | pmon) left_out "$1" ;;
    mig | clocks | drain | vgpu | c2c | compute-policy | boost-slider | power-hint | base-clocks | conf-compute | gpm | pci)
        case $2 in -h | --help) help && exit 0 ;; esac
        denied "$*"
        ;;
esac

while [ $# -gt 0 ]; do
    Option=$1
    shift
    case $Option in
        --*=*)
            set -- "${Option#*=}" "$@"
            Option=${Option%%=*}
            ;;
    esac
    case $Option in
        -i | --id | -f | --filename | -d | --display | --format | --query-* | -lms | --loop-ms)
            [ -n "$1" ] || refuse "ERROR: Option $Option is missing its value. Please run 'nvidia-smi -h' for help.
"
            Value=$1
            shift
            ;;
    esac
    case $Option in
        -h | --help) help && exit 0 ;;
        --help-query-*) help_fields "${Option#--help-query-}" && exit 0 ;;
        --version) task version ;;
        -L | --list-gpus) task list ;;
        -B | --list-excluded-gpus) task : ;;
        -q | --query) task xml ;;
        -x | --xml-format) Xml=yes ;;
        -u | --unit) refuse 'ERROR: No units were found' ;;
        -i | --id) Ids=$Value ;;
        -f | --filename) Output=$Value ;;
        -d | --display) ;; # of -q as text, which is left out
        --query-gpu | --query-compute-apps | --query-remapped-rows | --query-accounted-apps | --query-retired-pages)
            task query
            Fields=$Value
            Query=${Option#--query-}
            ;;
        --format) Format=$Value ;;
        -l | --loop)
            Loop=5
            if is_number "$1"; then
                Loop=$1
                shift
            fi
            ;;
        -lms | --loop-ms)
            is_number "$Value" || unknown "$Option $Value"
            Loop=$((Value / 1000)).$(printf '%03d' $((Value % 1000)))
            ;;
        -c | --compute-mode | -pm | --persistence-mode | -pl | --power-limit | -e | --ecc-config | -p | --reset-ecc-errors \
            | -r | --gpu-reset | -ac | --applications-clocks | -rac | --reset-applications-clocks | -lgc | --lock-gpu-clocks \
            | -rgc | --reset-gpu-clocks | -lmc | --lock-memory-clocks | -rmc | --reset-memory-clocks \
            | -mig | --multi-instance-gpu | -am | --accounting-mode) denied "$Option" ;;
        *) unknown "$Option" ;;
    esac
done

if [ "$Task" = query ]; then
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
elif [ -n "$Format" ]; then
    invalid
fi
case $Task$Xml in
    xmlyes) ;;
    xml*) left_out '-q as text' ;;
    *yes) invalid ;;
esac

[ -z "$Output" ] || exec >"$Output" || exit 255
look
$Task
while [ -n "$Loop" ]; do
    sleep "$Loop" || exit 255
    Header_shown=yes
    look
    $Task
done
exit 0
