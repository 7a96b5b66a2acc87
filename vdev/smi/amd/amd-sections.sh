
# The container's first program, which is what a container's own tool can see.
tell_process() {
    Process=
    [ "${process_memory:-0}" != 0 ] || return
    Pid=1
    if [ -r "${VDEV_SMI_PROC:-/proc}/1/comm" ]; then
        read -r Process <"${VDEV_SMI_PROC:-/proc}/1/comm" 2>/dev/null
    fi
    [ -n "$Process" ] || Process=python3
}

# Whether a section is asked for: one of its flags was given, or none of any.
section() {
    [ -n "$Flags" ] || return 0
    for Flag in "$@"; do
        case " $Flags " in *" $Flag "*) return 0 ;; esac
    done
    return 1
}

list() {
    text bdf "$bdf"
    text uuid "$uuid"
    number kfd_id "$kfd_id"
    number node_id "$node_id"
    number partition_id "$partition_id"
    if [ -n "$Flags" ]; then
        text render "renderD$render"
        text card "card$card"
        number hsa_id "$node_id"
        number hip_id "$Index"
        text hip_uuid "$hip_uuid"
    fi
}

static() {
    if section -a --asic; then
        open asic
        text market_name "$name"
        text vendor_id 0x1002
        text vendor_name 'Advanced Micro Devices Inc. [AMD/ATI]'
        text subvendor_id 0x1002
        text device_id "$device_id"
        text subsystem_id "$device_id"
        text rev_id 0x00
        text asic_serial "$serial"
        number oam_id "$oam"
        number num_compute_units "$compute_units"
        text target_graphics_version "$gfx_version"
        close
    fi
    if section -b --bus; then
        open bus
        text bdf "$bdf"
        number max_pcie_width "$pcie_width"
        measure max_pcie_speed "$pcie_speed" GT/s
        text pcie_interface_version "Gen $pcie_gen"
        text slot_type OAM
        close
    fi
    if section -V -I --vbios --ifwi; then
        open vbios
        text name "$vbios"
        text build_date N/A
        text part_number N/A
        text version N/A
        close
    fi
    if section -l --limit; then
        open limit
        measure max_power "$power_cap" W
        measure min_power 0 W
        measure socket_power "$power_cap" W
        text slowdown_edge_temperature N/A
        measure slowdown_hotspot_temperature "$temp_slowdown" C
        text slowdown_vram_temperature N/A
        text shutdown_edge_temperature N/A
        measure shutdown_hotspot_temperature "$temp_shutdown" C
        text shutdown_vram_temperature N/A
        close
    fi
    if section -d --driver; then
        open driver
        text name amdgpu
        text version "$driver"
        close
    fi
    if section -B --board; then
        open board
        text model_number "$model_number"
        text product_serial "$serial"
        text fru_id N/A
        text product_name "$name"
        text manufacturer_name AMD
        close
    fi
    if section -v --vram; then
        open vram
        text type HBM
        text vendor N/A
        measure size "$vram_total" MB
        text bit_width N/A
        close
    fi
    if section -u --numa; then
        open numa
        number node "${numa:-N/A}"
        number affinity "${numa:-N/A}"
        close
    fi
    if section -p --partition; then
        open partition
        text accelerator_partition "$compute_partition"
        text memory_partition "$memory_partition"
        number partition_id "$partition_id"
        close
    fi
}

metric() {
    if section -u --usage; then
        open usage
        measure gfx_activity "$gfx" %
        measure umc_activity "$umc" %
        text mm_activity N/A
        measures vcn_activity 0 % 4 4
        measures jpeg_activity 0 % 40 32
        close
    fi
    if section -p --power; then
        open power
        measure socket_power "$power" W
        text gfx_voltage N/A
        text soc_voltage N/A
        text mem_voltage N/A
        text throttle_status "$throttle"
        text power_management ENABLED
        close
    fi
    if section -c --clock; then
        open clock
        open gfx_0
        measure clk "$clock" MHz
        measure min_clk "$min_clock" MHz
        measure max_clk "$max_clock" MHz
        text clk_locked DISABLED
        text deep_sleep DISABLED
        close
        open mem_0
        measure clk "$mem_clock" MHz
        measure min_clk "$min_mem_clock" MHz
        measure max_clk "$max_mem_clock" MHz
        text clk_locked N/A
        text deep_sleep DISABLED
        close
        close
    fi
    if section -t --temperature; then
        open temperature
        measure edge "$temp_edge" C
        measure hotspot "$temp" C
        measure mem "$mem_temp" C
        close
    fi
    if section -P --pcie; then
        open pcie
        number width "$pcie_width"
        measure speed "$pcie_speed" GT/s
        measure bandwidth "$pcie_bandwidth" Mb/s
        number replay_count "$replays"
        text l0_to_recovery_count N/A
        text replay_roll_over_count N/A
        text nak_sent_count N/A
        text nak_received_count N/A
        close
    fi
    if section -e --ecc; then
        open ecc
        number total_correctable_count "$corrected"
        number total_uncorrectable_count "$uncorrected"
        number total_deferred_count 0
        text cache_correctable_count N/A
        text cache_uncorrectable_count N/A
        close
    fi
    if section -k --ecc-blocks; then
        open ecc_blocks
        open UMC
        number correctable_count "$corrected"
        number uncorrectable_count "$uncorrected"
        number deferred_count 0
        close
        close
    fi
    if section -f --fan; then
        open fan
        text speed N/A
        text max N/A
        text rpm N/A
        text usage N/A
        close
    fi
    if section -E --energy; then
        open energy
        measure total_energy_consumption "$energy" J
        close
    fi
    if section -m --mem-usage; then
        open mem_usage
        measure total_vram "$vram_total" MB
        measure used_vram "$vram_used" MB
        measure free_vram "$vram_free" MB
        measure total_visible_vram "$vram_total" MB
        measure used_visible_vram "$vram_used" MB
        measure free_visible_vram "$vram_free" MB
        measure total_gtt "$gtt" MB
        measure used_gtt 0 MB
        measure free_gtt "$gtt" MB
        close
    fi
}

process() {
    tell_process
    if [ "$Format" != json ]; then
        if [ -z "$Process" ]; then
            text process_info 'No running processes detected'
            return
        fi
        process_info
        return
    fi
    comma "$Depth"
    printf '%s"process_list": [\n' "$Depth"
    Depth="$Depth    "
    printf '%s{\n' "$Depth"
    Depth="$Depth    "
    Begun=
    if [ -n "$Process" ]; then process_info; else text process_info 'No running processes detected'; fi
    Depth=${Depth%    }
    printf '\n%s}' "$Depth"
    Depth=${Depth%    }
    printf '\n%s]' "$Depth"
    Begun=yes
}

process_info() {
    open process_info
    text name "$Process"
    number pid "$Pid"
    open memory_usage
    measure gtt_mem 0 B
    measure cpu_mem 0 B
    measure vram_mem "$process_memory_bytes" B
    close
    measure mem_usage "$process_memory_bytes" B
    open usage
    measure gfx 0 ns
    measure enc 0 ns
    close
    number cu_occupancy "$cu_occupancy"
    close
}

version() {
    each_gpu :
    if [ "$Format" = json ]; then
        printf '[\n    {\n        "tool": "AMDSMI Tool",\n        "version": "%s",\n        "amdsmi_library_version": "%s",\n        "rocm_version": "%s",\n        "amdgpu_version": "%s",\n        "amd_hsmp_driver_version": "N/A"\n    }\n]\n' \
            "$tool" "${tool%%+*}" "$rocm" "$driver"
    else
        say "AMDSMI Tool: $tool | AMDSMI Library version: ${tool%%+*} | ROCm version: $rocm | amdgpu version: $driver | amd_hsmp version: N/A"
    fi
}

# The summary that `amd-smi` alone shows.
table() {
    each_gpu :
    Bar=------------------------------------------------------------------------------
    say "+$Bar+"
    printf '| %-77s|\n' "AMD-SMI ${tool%%+*}  amdgpu version: $driver  ROCm version: $rocm"
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
    each_gpu table_process
    [ -n "$Any" ] || say '|  No running processes found                                                  |'
    say "+$Bar+"
}

table_gpu() {
    [ "$Index" = 0 ] || printf '|%.37s+%.40s|\n' "$Bar" "$Bar"
    printf '| %-13s%22.22s | %-9s%3s °C%6s%17s |\n' "$bdf" "$name" "$umc %" "$temp" "$uncorrected" "$power/$power_cap W"
    printf '| %3s%8s%8s%16s | %-9s%5s%24s |\n' "$Index" "$Index" "$oam" "$compute_partition/$memory_partition" "$gfx %" N/A \
        "$vram_used/$vram_total MB"
}

table_process() {
    tell_process
    [ -n "$Process" ] || return
    Any=yes
    printf '|%5s%11s  %-18.18s%11s%10s%11s%7s%%  |\n' "$Index" "$Pid" "$Process" '0.0 B' "${process_memory} MB" \
        "${process_memory} MB" "$cu_occupancy"
}

list_csv() {
    say 'gpu,gpu_bdf,gpu_uuid,kfd_id,node_id,partition_id'
    each_gpu list_row
}

list_row() {
    say "$Index,$bdf,$uuid,$kfd_id,$node_id,$partition_id"
}
