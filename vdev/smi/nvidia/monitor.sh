
# dmon and pmon: a line for each GPU or program, again and again. $Select are the letters of the groups of columns, and
# $Options those of what comes before them: D for the date, T for the time.
dmon() {
    monitor_header
    say ' '
    monitor dmon_gpu :
}

pmon() {
    monitor_header pid '#' type C/G
    say
    monitor pmon_gpu pmon_part
}

monitor() {
    while :; do
        tell_time
        each_gpu "$1" "$2"
        Times=$((Times - 1))
        [ "$Times" != 0 ] || return 0
        sleep "${Loop:-1}" || exit 255
    done
}

# The names of all columns, and then their units; $1 to $4 are those of pmon after the GPU's.
monitor_header() {
    Show=names
    monitor_start '#Date    ' '#Time    ' '    Time    ' '#' gpu
    [ $# = 0 ] || printf '%12s%7s' "$1" "$3"
    monitor_columns
    [ $# = 0 ] || printf '    command'
    say ' '
    Show=units
    monitor_start '#YYYYMMDD' '#HH:MM:SS' '    HH:MM:SS' '#' Idx
    [ $# = 0 ] || printf '%12s%7s' "$2" "$4"
    monitor_columns
    [ $# = 0 ] || printf '    name '
    Show=values
}

# What a line begins with: the date, the time alone, the time after the date, the first sign without them, the GPU.
monitor_start() {
    case $Options in
        '') printf '%s%4s' "$4" "$5" ;;
        D) printf '%s%8s' "$1" "$5" ;;
        T) printf '%s%8s' "$2" "$5" ;;
        *) printf '%s%s%8s' "$1" "$3" "$5" ;;
    esac
}

monitor_line() {
    Clock=${Now_csv#* }
    Clock=${Clock%.*}
    Day=${Now_csv%% *}
    Year=${Day%%/*}
    Day=${Day#*/}
    monitor_start " $Year${Day%/*}${Day#*/}" " $Clock" "    $Clock" ' ' "$Index"
}

monitor_columns() {
    Rest=$Select
    while [ -n "$Rest" ]; do
        "${Task}_${Rest%"${Rest#?}"}"
        Rest=${Rest#?}
    done
}

# A column: its name, its unit, its value.
column() {
    case $Show in
        names) printf '%7s' "$1" ;;
        units) printf '%7s' "$2" ;;
        *)
            case $3 in
                N/A | '') printf '      -' ;;
                *) printf '%7s' "$3" ;;
            esac
            ;;
    esac
}

# Whether $1 is what is, as a number.
flag() {
    Flag=0
    [ "$1" != Active ] || Flag=1
}

dmon_gpu() {
    monitor_line
    monitor_columns
    say ' '
}

dmon_p() {
    whole "$power"
    column pwr W "$Whole"
    column gtemp C "$temp"
    column mtemp C "$mem_temp"
}

dmon_u() {
    column sm % "$util"
    column mem % "$mem_util"
    column enc % "$enc_util"
    column dec % "$dec_util"
    column jpg % "$idle_util"
    column ofa % "$idle_util"
}

dmon_c() {
    column mclk MHz "$mem_clock"
    column pclk MHz "$clock"
}

dmon_v() {
    flag "$why_power"
    column pviol % $((Flag * 100))
    flag "$why_hot"
    column tviol bool "$Flag"
}

dmon_m() {
    column fb MB "$used"
    column bar1 MB 1
    column ccpm MB 0
}

dmon_e() {
    column sbecc errs "$corrected"
    column dbecc errs "$uncorrected"
    column pci errs "$replays"
}

dmon_t() {
    case $pcie_rx in
        '' | *[!0-9]*)
            column rxpci MB/s -
            column txpci MB/s -
            ;;
        *)
            column rxpci MB/s $((pcie_rx / 1000))
            column txpci MB/s $((pcie_tx / 1000))
            ;;
    esac
}

pmon_gpu() {
    [ -n "$mig_uuid" ] || pmon_program "$util" "$mem_util"
}

pmon_part() {
    pmon_program - -
}

pmon_program() {
    monitor_line
    tell_process
    if [ -z "$Process" ]; then
        printf '%11s%6s' - -
        Sm=-
        Memory=-
        Framebuffer=-
        Protected=-
        Process=-
    else
        printf '%11s%6s' "$Pid" C
        Sm=$1
        Memory=$2
        Framebuffer=$process_memory
        Protected=0
    fi
    monitor_columns
    printf '    %-15.15s\n' "${Process##*/}"
}

pmon_u() {
    column sm % "$Sm"
    column mem % "$Memory"
    column enc % -
    column dec % -
    column jpg % -
    column ofa % -
}

pmon_m() {
    column fb MB "$Framebuffer"
    column ccpm MB "$Protected"
}
