#!/bin/sh
# A tool for simulated AMD GPUs, made by vdev. It needs a POSIX shell alone, and shows what the files below $Directory
# say of the container's devices. Names that begin with a capital letter are its own, others come from these files.

Directory=${VDEV_SMI_DIR:-/run/vdev/smi}

# Print $1 as it is; echo would read backslashes in it.
say() {
    printf '%s\n' "$1"
}

# Call $1 for every device that was chosen, with its data in variables.
each_gpu() {
    Index=-1
    for File in "$Directory"/*/amd; do
        [ -r "$File" ] || continue
        . "$File"
        Index=$((Index + 1))
        is_wanted && $1
    done
}

is_wanted() {
    case " $Ids " in
        '  ' | *" $Index "* | *" $bdf "* | *" $uuid "*) return 0 ;;
    esac
    return 1
}

# Replace the characters of $1 that mean something in JSON.
escape() {
    Escaped=
    Text=$1
    while [ -n "$Text" ]; do
        Tail=${Text#?}
        case ${Text%"$Tail"} in
            '"') Escaped="$Escaped\\\"" ;;
            \\) Escaped="$Escaped\\\\" ;;
            *) Escaped=$Escaped${Text%"$Tail"} ;;
        esac
        Text=$Tail
    done
}

count_gpu() {
    Chosen=$((Chosen + 1))
    [ -z "$lost" ] || Lost="$Lost $Index"
}
