#!/bin/sh
# nvidia-smi for simulated GPUs, made by vdev. It needs a POSIX shell alone, and shows what the files below $Directory
# say of the container's devices. Names that begin with a capital letter are its own, others come from these files.

Directory=${VDEV_SMI_DIR:-/run/vdev/smi}
Gone='[Requested functionality has been deprecated]'

# Print $1 as it is; echo would read backslashes in it.
say() {
    printf '%s\n' "$1"
}

# Whether the image has a program.
have() {
    command -v "$1" >/dev/null 2>&1
}

# Call $1 for every GPU, and $2 for every MIG device, each with its data in variables.
each_gpu() {
    Index=-1
    Last=
    Part=0
    Wanted=yes
    for File in "$Directory"/*/nvidia; do
        [ -r "$File" ] || continue
        . "$File"
        if [ "$uuid" != "$Last" ]; then
            Last=$uuid
            Index=$((Index + 1))
            Part=0
            Wanted=yes
            is_wanted || Wanted=
            [ -z "$Wanted" ] || $1
        fi
        if [ -n "$mig_uuid" ]; then
            [ -z "$Wanted" ] || ${2:-:}
            Part=$((Part + 1))
        fi
    done
}

# Whether -i chose the GPU: by number, UUID, serial number or PCI address.
is_wanted() {
    [ -n "$Ids" ] || return 0
    Rest=$Ids,
    while [ -n "$Rest" ]; do
        Id=${Rest%%,*}
        Rest=${Rest#*,}
        case $Id in
            "$Index" | "$uuid" | "$serial" | "$bus_id" | "${bus_id#0000}" | "${bus_id#00000000:}") return 0 ;;
        esac
    done
    return 1
}

count_gpu() {
    Chosen=$((Chosen + 1))
    case $lost in
        '') ;;
        *) Lost="Unable to determine the device handle for GPU$Index: ${bus_id#0000}: $lost" ;;
    esac
}

# What there is, and whether it can be asked; says so and ends where it cannot.
look() {
    Count=0
    Last=
    Unreadable=
    for Place in "$Directory"/*; do
        if [ -r "$Place/nvidia" ]; then
            . "$Place/nvidia"
            [ "$uuid" = "$Last" ] || Count=$((Count + 1))
            Last=$uuid
        elif [ -d "$Place" ] && ! [ -e "$Place/amd" ]; then
            Unreadable=yes
        fi
    done
    if [ "$Count$Unreadable" = 0yes ]; then
        say "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running."
        say ''
        exit 9
    fi
    Chosen=0
    Lost=
    each_gpu count_gpu
    if [ -n "$Lost" ]; then
        case $Lost in
            *'GPU is lost') Lost="$Lost.  Reboot the system to recover this GPU" ;;
        esac
        say "$Lost"
        [ "$Chosen" -gt 1 ] || say 'No devices were found'
        exit 15
    fi
    if [ "$Chosen" = 0 ]; then
        say 'No devices were found'
        exit 6
    fi
}

# The time of this call, in both forms; of the data where the image has no `date`.
tell_time() {
    Now=$written
    Now_csv=$written_csv
    if have date; then
        Now=$(LC_ALL=C date '+%a %b %e %H:%M:%S %Y')
        Now_csv="$(LC_ALL=C date '+%Y/%m/%d %H:%M:%S').${written_csv##*.}"
    fi
}

# The program that has the memory: the container's first one, which is what a container's own tool can see.
tell_process() {
    Process=
    case $process_memory in '' | 0) return ;; esac
    Pid=1
    if [ -r "${VDEV_SMI_PROC:-/proc}/1/cmdline" ]; then
        read -r Process <"${VDEV_SMI_PROC:-/proc}/1/comm" 2>/dev/null
        Link=$(readlink "${VDEV_SMI_PROC:-/proc}/1/exe" 2>/dev/null) && [ -n "$Link" ] && Process=$Link
    fi
    [ -n "$Process" ] || Process=python3
}

refuse() {
    say "$1"
    exit 2
}
