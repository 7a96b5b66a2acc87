
# Selective queries: $Fields of each GPU or program, as lines of comma-separated values.
csv_begin() {
    Header=
    csv_fields "$1" csv_header
    [ -n "$No_header" ] || [ -n "$Header_told" ] || say "$Header"
}

csv_row() {
    Row=
    Begun=
    csv_fields "$1" csv_value
    say "$Row"
}

# Call $2 for each of $Fields, which $1 knows: its name, unit and value are in Head, Unit and Value.
csv_fields() {
    Rest=$Fields,
    while [ -n "$Rest" ]; do
        Field=${Rest%%,*}
        Rest=${Rest#*,}
        while [ "$Field" != "${Field# }" ]; do Field=${Field# }; done
        while [ "$Field" != "${Field% }" ]; do Field=${Field% }; done
        Plain=
        $1 "$Field" || refuse "Field \"$Field\" is not a valid field to query.
"
        $2
    done
}

csv_header() {
    Header=$Header${Header:+, }$Head
    [ -z "$Unit" ] || Header="$Header [$Unit]"
}

csv_value() {
    case $Value$Plain in
        N/A) Value='[N/A]' ;;
        '['*) ;;
        *) [ -z "$Unit" ] || [ -n "$No_units" ] || Value="$Value $Unit" ;;
    esac
    Row=$Row${Begun:+, }$Value
    Begun=yes
}

query_gpu() {
    csv_begin gpu_field
    each_gpu gpu_row
}

gpu_row() {
    csv_row gpu_field
}

query_apps() {
    csv_begin app_field
    each_gpu whole_gpu_app app_row
}

whole_gpu_app() {
    [ -n "$mig_uuid" ] || app_row
}

app_row() {
    tell_process
    [ -n "$Process" ] || return
    csv_row app_field
}

app_field() {
    Head=$1
    Unit=
    case $1 in
        timestamp) Value=$Now_csv ;;
        gpu_name) Value=$name ;;
        gpu_bus_id) Value=$bus_id ;;
        gpu_serial) Value=$serial ;;
        gpu_uuid) Value=$uuid ;;
        pid) Value=$Pid ;;
        process_name | name) Head=process_name Value=$Process ;;
        used_gpu_memory | used_memory) Head=used_gpu_memory Unit=MiB Value=$process_memory ;;
        *) return 1 ;;
    esac
}

query_none() {
    csv_begin "$None"
}

accounted_field() {
    Head=$1
    Unit=
    case $1 in
        timestamp | gpu_name | gpu_bus_id | gpu_serial | gpu_uuid | vgpu_instance | pid) ;;
        gpu_utilization | gpu_util) Head=gpu_utilization Unit=% ;;
        mem_utilization | mem_util) Head=mem_utilization Unit=% ;;
        max_memory_usage) Unit=MiB ;;
        time) Unit=ms ;;
        *) return 1 ;;
    esac
}

retired_field() {
    Head=$1
    Unit=
    case $1 in
        timestamp | gpu_name | gpu_bus_id | gpu_serial | gpu_uuid) ;;
        retired_pages.address | retired_pages.timestamp | retired_pages.cause) ;;
        *) return 1 ;;
    esac
}

remapped_field() {
    Head=$1
    Unit=
    case $1 in
        timestamp) Value=$Now_csv ;;
        gpu_name) Value=$name ;;
        gpu_bus_id) Value=$bus_id ;;
        gpu_serial) Value=$serial ;;
        gpu_uuid) Value=$uuid ;;
        remapped_rows.correctable) Value=$remapped_corrected ;;
        remapped_rows.uncorrectable) Value=$remapped_uncorrected ;;
        remapped_rows.pending) Value=$remapped_pending ;;
        remapped_rows.failure) Value=$remapped_failed ;;
        remapped_rows.histogram.max | remapped_rows.histogram.high | remapped_rows.histogram.partial) Value=N/A ;;
        remapped_rows.histogram.low | remapped_rows.histogram.none) Value=N/A ;;
        *) return 1 ;;
    esac
}

query_remapped() {
    csv_begin remapped_field
    each_gpu remapped_row
}

remapped_row() {
    csv_row remapped_field
}
