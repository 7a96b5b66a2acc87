
# -q -x: the same as XML, in the elements of NVIDIA's DTD of version 12, or 13 from driver 560 on.
xml() {
    Dtd=12
    [ "${driver%%.*}" -lt 560 ] 2>/dev/null || Dtd=13
    escape "$driver"
    Driver_xml=$Escaped
    escape "$cuda"
    say "<?xml version=\"1.0\" ?>
<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v$Dtd.dtd\">
<nvidia_smi_log>
	<timestamp>$Now</timestamp>
	<driver_version>$Driver_xml</driver_version>
	<cuda_version>$Escaped</cuda_version>
	<attached_gpus>$Count</attached_gpus>"
    Open=
    each_gpu xml_gpu_begins xml_part
    xml_gpu_ends
    say '</nvidia_smi_log>'
}

xml_gpu_begins() {
    xml_gpu_ends
    . "$File"
    Open=$File
    Programs=
    escape "$name"
    Name_xml=$Escaped
    say "	<gpu id=\"$bus_id\">
		<product_name>$Name_xml</product_name>
		<product_brand>$brand</product_brand>
		<product_architecture>$architecture</product_architecture>
		<display_mode>Requested functionality has been deprecated</display_mode>
		<display_attached>No</display_attached>
		<display_active>Disabled</display_active>
		<persistence_mode>$persistence</persistence_mode>
		<addressing_mode>None</addressing_mode>
		<mig_mode>
			<current_mig>$mig</current_mig>
			<pending_mig>$mig</pending_mig>
		</mig_mode>
		<mig_devices>"
    [ -n "$mig_uuid" ] || say '			None'
}

xml_part() {
    Open=$File
    say "			<mig_device>
				<index>$Part</index>
				<gpu_instance_id>$mig_gi</gpu_instance_id>
				<compute_instance_id>$mig_ci</compute_instance_id>
				<device_attributes>
					<shared>
						<multiprocessor_count>$mig_sms</multiprocessor_count>
						<copy_engine_count>$mig_ce</copy_engine_count>
						<encoder_count>$mig_enc</encoder_count>
						<decoder_count>$mig_dec</decoder_count>
						<ofa_count>$mig_ofa</ofa_count>
						<jpg_count>$mig_jpg</jpg_count>
					</shared>
				</device_attributes>
				<ecc_error_count>
					<volatile_count>
						<sram_uncorrectable>$mig_uncorrected</sram_uncorrectable>
					</volatile_count>
				</ecc_error_count>
				<fb_memory_usage>
					<total>$mig_total MiB</total>
					<reserved>$mig_reserved MiB</reserved>
					<used>$mig_used MiB</used>
					<free>$mig_free MiB</free>
				</fb_memory_usage>
				<bar1_memory_usage>
					<total>$mig_bar1 MiB</total>
					<used>0 MiB</used>
					<free>$mig_bar1 MiB</free>
				</bar1_memory_usage>
			</mig_device>"
    xml_remember "$mig_gi" "$mig_ci"
}

xml_remember() {
    tell_process
    [ -n "$Process" ] || return
    escape "$Process"
    Programs="$Programs
			<process_info>
				<gpu_instance_id>$1</gpu_instance_id>
				<compute_instance_id>$2</compute_instance_id>
				<pid>$Pid</pid>
				<type>C</type>
				<process_name>$Escaped</process_name>
				<used_memory>$process_memory MiB</used_memory>
			</process_info>"
}

# The units of values that may be unknown.
tell_units() {
    Fan=N/A Util=N/A Mem_util=N/A Enc_util=N/A Dec_util=N/A Idle_util=N/A Mem_temp=N/A Margin=N/A Least=N/A
    [ "$fan" = N/A ] || Fan="$fan %"
    [ "$util" = N/A ] || Util="$util %"
    [ "$mem_util" = N/A ] || Mem_util="$mem_util %"
    [ "$enc_util" = N/A ] || Enc_util="$enc_util %"
    [ "$dec_util" = N/A ] || Dec_util="$dec_util %"
    [ "$idle_util" = N/A ] || Idle_util="$idle_util %"
    [ "$mem_temp" = N/A ] || Mem_temp="$mem_temp C"
    [ "$temp_margin" = N/A ] || Margin="$temp_margin C"
    [ "$power_least" = N/A ] || Least="$power_least W"
}

# Replace the characters of $1 that mean something in XML.
escape() {
    Escaped=
    Text=$1
    while [ -n "$Text" ]; do
        Tail=${Text#?}
        case ${Text%"$Tail"} in
            '&') Escaped="$Escaped&amp;" ;;
            '<') Escaped="$Escaped&lt;" ;;
            '>') Escaped="$Escaped&gt;" ;;
            *) Escaped=$Escaped${Text%"$Tail"} ;;
        esac
        Text=$Tail
    done
}

xml_gpu_ends() {
    [ -n "$Open" ] || return
    File_next=$File
    . "$Open"
    [ -n "$mig_uuid" ] || xml_remember N/A N/A
    tell_units
    say '		</mig_devices>'
    if [ "$temp_margin" = N/A ]; then
        Temperature_xml="		<temperature>
			<gpu_temp>$temp C</gpu_temp>
			<gpu_temp_tlimit>N/A</gpu_temp_tlimit>
			<gpu_temp_max_threshold>$temp_shutdown C</gpu_temp_max_threshold>
			<gpu_temp_slow_threshold>$temp_slowdown C</gpu_temp_slow_threshold>
			<gpu_temp_max_gpu_threshold>$temp_max C</gpu_temp_max_gpu_threshold>
			<gpu_target_temperature>N/A</gpu_target_temperature>
			<memory_temp>$Mem_temp</memory_temp>
			<gpu_temp_max_mem_threshold>N/A</gpu_temp_max_mem_threshold>
		</temperature>"
    else
        Temperature_xml="		<temperature>
			<gpu_temp>$temp C</gpu_temp>
			<gpu_temp_tlimit>$Margin</gpu_temp_tlimit>
			<gpu_temp_max_tlimit_threshold>$((temp_max - temp_shutdown)) C</gpu_temp_max_tlimit_threshold>
			<gpu_temp_slow_tlimit_threshold>$((temp_max - temp_slowdown)) C</gpu_temp_slow_tlimit_threshold>
			<gpu_temp_max_gpu_tlimit_threshold>0 C</gpu_temp_max_gpu_tlimit_threshold>
			<gpu_target_temperature>N/A</gpu_target_temperature>
			<memory_temp>$Mem_temp</memory_temp>
			<gpu_temp_max_mem_tlimit_threshold>N/A</gpu_temp_max_mem_tlimit_threshold>
		</temperature>"
    fi
    say "		<accounting_mode>Disabled</accounting_mode>
		<accounting_mode_buffer_size>4000</accounting_mode_buffer_size>
		<driver_model>
			<current_dm>N/A</current_dm>
			<pending_dm>N/A</pending_dm>
		</driver_model>
		<serial>$serial</serial>
		<uuid>$uuid</uuid>
		<pdi>$pdi</pdi>
		<minor_number>$minor</minor_number>
		<vbios_version>$vbios</vbios_version>
		<multigpu_board>No</multigpu_board>
		<board_id>$board_id</board_id>
		<board_part_number>$board_part</board_part_number>
		<gpu_part_number>$gpu_part</gpu_part_number>
		<gpu_fru_part_number>N/A</gpu_fru_part_number>
		<platformInfo>
			<chassis_serial_number>N/A</chassis_serial_number>
			<slot_number>N/A</slot_number>
			<tray_index>N/A</tray_index>
			<host_id>N/A</host_id>
			<peer_type>N/A</peer_type>
			<module_id>N/A</module_id>
			<gpu_fabric_guid>N/A</gpu_fabric_guid>
		</platformInfo>
		<inforom_version>
			<img_version>$inforom</img_version>
			<oem_object>2.1</oem_object>
			<ecc_object>$inforom_ecc</ecc_object>
			<pwr_object>N/A</pwr_object>
		</inforom_version>
		<inforom_bbx_flush>
			<latest_timestamp>N/A</latest_timestamp>
			<latest_duration>N/A</latest_duration>
		</inforom_bbx_flush>
		<gpu_operation_mode>
			<current_gom>N/A</current_gom>
			<pending_gom>N/A</pending_gom>
		</gpu_operation_mode>
		<c2c_mode>Disabled</c2c_mode>
		<gpu_virtualization_mode>
			<virtualization_mode>None</virtualization_mode>
			<host_vgpu_mode>N/A</host_vgpu_mode>
			<vgpu_heterogeneous_mode>N/A</vgpu_heterogeneous_mode>
		</gpu_virtualization_mode>
		<gpu_recovery_action>$recovery</gpu_recovery_action>
		<gsp_firmware_version>$Driver_xml</gsp_firmware_version>
		<ibmnpu>
			<relaxed_ordering_mode>N/A</relaxed_ordering_mode>
		</ibmnpu>
		<pci>
			<pci_bus>$pci_bus</pci_bus>
			<pci_device>$pci_device</pci_device>
			<pci_domain>$pci_domain</pci_domain>
			<pci_base_class>3</pci_base_class>
			<pci_sub_class>2</pci_sub_class>
			<pci_device_id>${pci_id#0x}</pci_device_id>
			<pci_bus_id>$bus_id</pci_bus_id>
			<pci_sub_system_id>${pci_sub_id#0x}</pci_sub_system_id>
			<pci_gpu_link_info>
				<pcie_gen>
					<max_link_gen>$link_gen_max</max_link_gen>
					<current_link_gen>$link_gen</current_link_gen>
					<device_current_link_gen>$link_gen</device_current_link_gen>
					<max_device_link_gen>$link_gen_max</max_device_link_gen>
					<max_host_link_gen>N/A</max_host_link_gen>
				</pcie_gen>
				<link_widths>
					<max_link_width>${link_width_max}x</max_link_width>
					<current_link_width>${link_width}x</current_link_width>
				</link_widths>
			</pci_gpu_link_info>
			<pci_bridge_chip>
				<bridge_chip_type>N/A</bridge_chip_type>
				<bridge_chip_fw>N/A</bridge_chip_fw>
			</pci_bridge_chip>
			<replay_counter>$replays</replay_counter>
			<replay_rollover_counter>0</replay_rollover_counter>
			<tx_util>$pcie_tx KB/s</tx_util>
			<rx_util>$pcie_rx KB/s</rx_util>
			<atomic_caps_outbound>N/A</atomic_caps_outbound>
			<atomic_caps_inbound>N/A</atomic_caps_inbound>
		</pci>
		<fan_speed>$Fan</fan_speed>
		<performance_state>$pstate</performance_state>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>$why_idle</clocks_event_reason_gpu_idle>
			<clocks_event_reason_applications_clocks_setting>Not Active</clocks_event_reason_applications_clocks_setting>
			<clocks_event_reason_sw_power_cap>$why_power</clocks_event_reason_sw_power_cap>
			<clocks_event_reason_hw_slowdown>$why_hw</clocks_event_reason_hw_slowdown>
			<clocks_event_reason_hw_thermal_slowdown>$why_hw</clocks_event_reason_hw_thermal_slowdown>
			<clocks_event_reason_hw_power_brake_slowdown>Not Active</clocks_event_reason_hw_power_brake_slowdown>
			<clocks_event_reason_sync_boost>Not Active</clocks_event_reason_sync_boost>
			<clocks_event_reason_sw_thermal_slowdown>$why_hot</clocks_event_reason_sw_thermal_slowdown>
			<clocks_event_reason_display_clocks_setting>Not Active</clocks_event_reason_display_clocks_setting>
		</clocks_event_reasons>
		<clocks_event_reasons_counters>
			<clocks_event_reasons_counters_sw_power_cap>0 us</clocks_event_reasons_counters_sw_power_cap>
			<clocks_event_reasons_counters_sync_boost>0 us</clocks_event_reasons_counters_sync_boost>
			<clocks_event_reasons_counters_sw_therm_slowdown>0 us</clocks_event_reasons_counters_sw_therm_slowdown>
			<clocks_event_reasons_counters_hw_therm_slowdown>0 us</clocks_event_reasons_counters_hw_therm_slowdown>
			<clocks_event_reasons_counters_hw_power_brake>0 us</clocks_event_reasons_counters_hw_power_brake>
		</clocks_event_reasons_counters>
		<sparse_operation_mode>Disabled</sparse_operation_mode>
		<fb_memory_usage>
			<total>$total MiB</total>
			<reserved>$reserved MiB</reserved>
			<used>$used MiB</used>
			<free>$free MiB</free>
		</fb_memory_usage>
		<bar1_memory_usage>
			<total>$bar1 MiB</total>
			<used>1 MiB</used>
			<free>$((bar1 - 1)) MiB</free>
		</bar1_memory_usage>
		<cc_protected_memory_usage>
			<total>0 MiB</total>
			<used>0 MiB</used>
			<free>0 MiB</free>
		</cc_protected_memory_usage>
		<compute_mode>Default</compute_mode>
		<utilization>
			<gpu_util>$Util</gpu_util>
			<memory_util>$Mem_util</memory_util>
			<encoder_util>$Enc_util</encoder_util>
			<decoder_util>$Dec_util</decoder_util>
			<jpeg_util>$Idle_util</jpeg_util>
			<ofa_util>$Idle_util</ofa_util>
		</utilization>
		<encoder_stats>
			<session_count>0</session_count>
			<average_fps>0</average_fps>
			<average_latency>0</average_latency>
		</encoder_stats>
		<fbc_stats>
			<session_count>0</session_count>
			<average_fps>0</average_fps>
			<average_latency>0</average_latency>
		</fbc_stats>
		<dram_encryption_mode>
			<current_dram_encryption>N/A</current_dram_encryption>
			<pending_dram_encryption>N/A</pending_dram_encryption>
		</dram_encryption_mode>
		<ecc_mode>
			<current_ecc>$ecc</current_ecc>
			<pending_ecc>$ecc</pending_ecc>
		</ecc_mode>
		<ecc_errors>
			<volatile>
				<sram_correctable>$sram_corrected</sram_correctable>
				<sram_uncorrectable_parity>$sram_parity</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>$sram_uncorrected</sram_uncorrectable_secded>
				<dram_correctable>$dram_corrected</dram_correctable>
				<dram_uncorrectable>$dram_uncorrected</dram_uncorrectable>
			</volatile>
			<aggregate>
				<sram_correctable>$sram_corrected</sram_correctable>
				<sram_uncorrectable_parity>$sram_parity</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>$sram_uncorrected</sram_uncorrectable_secded>
				<dram_correctable>$dram_corrected</dram_correctable>
				<dram_uncorrectable>$dram_uncorrected</dram_uncorrectable>
				<sram_threshold_exceeded>$sram_exceeded</sram_threshold_exceeded>
			</aggregate>
			<aggregate_uncorrectable_sram_sources>
				<sram_l2>$sram_parity</sram_l2>
				<sram_sm>$sram_uncorrected</sram_sm>
				<sram_microcontroller>$sram_parity</sram_microcontroller>
				<sram_pcie>$sram_parity</sram_pcie>
				<sram_other>$sram_parity</sram_other>
			</aggregate_uncorrectable_sram_sources>
			<channel_repair_pending>No</channel_repair_pending>
			<tpc_repair_pending>No</tpc_repair_pending>
			<unrepairable_memory>No</unrepairable_memory>
		</ecc_errors>
		<retired_pages>
			<multiple_single_bit_retirement>
				<retired_count>N/A</retired_count>
				<retired_pagelist>N/A</retired_pagelist>
			</multiple_single_bit_retirement>
			<double_bit_retirement>
				<retired_count>N/A</retired_count>
				<retired_pagelist>N/A</retired_pagelist>
			</double_bit_retirement>
			<pending_blacklist>N/A</pending_blacklist>
			<pending_retirement>N/A</pending_retirement>
		</retired_pages>
		<remapped_rows>
			<remapped_row_corr>$remapped_corrected</remapped_row_corr>
			<remapped_row_unc>$remapped_uncorrected</remapped_row_unc>
			<remapped_row_pending>$remapped_pending</remapped_row_pending>
			<remapped_row_failure>$remapped_failed</remapped_row_failure>
			<row_remapper_histogram>N/A</row_remapper_histogram>
		</remapped_rows>
$Temperature_xml
		<supported_gpu_target_temp>
			<gpu_target_temp_min>N/A</gpu_target_temp_min>
			<gpu_target_temp_max>N/A</gpu_target_temp_max>
		</supported_gpu_target_temp>
		<gpu_power_readings>
			<power_state>$pstate</power_state>
			<average_power_draw>$power W</average_power_draw>
			<instant_power_draw>$power W</instant_power_draw>
			<current_power_limit>$power_limit W</current_power_limit>
			<requested_power_limit>$power_limit W</requested_power_limit>
			<default_power_limit>$power_limit W</default_power_limit>
			<min_power_limit>$Least</min_power_limit>
			<max_power_limit>$power_limit W</max_power_limit>
		</gpu_power_readings>
		<gpu_memory_power_readings>
			<average_power_draw>N/A</average_power_draw>
			<instant_power_draw>N/A</instant_power_draw>
		</gpu_memory_power_readings>
		<module_power_readings>
			<power_state>$pstate</power_state>
			<average_power_draw>N/A</average_power_draw>
			<instant_power_draw>N/A</instant_power_draw>
			<current_power_limit>N/A</current_power_limit>
			<requested_power_limit>N/A</requested_power_limit>
			<default_power_limit>N/A</default_power_limit>
			<min_power_limit>N/A</min_power_limit>
			<max_power_limit>N/A</max_power_limit>
		</module_power_readings>
		<power_smoothing>N/A</power_smoothing>
		<power_profiles>
			<power_profile_requested_profiles>N/A</power_profile_requested_profiles>
			<power_profile_enforced_profiles>N/A</power_profile_enforced_profiles>
		</power_profiles>
		<clocks>
			<graphics_clock>$clock MHz</graphics_clock>
			<sm_clock>$clock MHz</sm_clock>
			<mem_clock>$mem_clock MHz</mem_clock>
			<video_clock>$video_clock MHz</video_clock>
		</clocks>
		<applications_clocks>
			<graphics_clock>$max_clock MHz</graphics_clock>
			<mem_clock>$max_mem_clock MHz</mem_clock>
		</applications_clocks>
		<default_applications_clocks>
			<graphics_clock>$max_clock MHz</graphics_clock>
			<mem_clock>$max_mem_clock MHz</mem_clock>
		</default_applications_clocks>
		<deferred_clocks>
			<mem_clock>N/A</mem_clock>
		</deferred_clocks>
		<max_clocks>
			<graphics_clock>$max_clock MHz</graphics_clock>
			<sm_clock>$max_clock MHz</sm_clock>
			<mem_clock>$max_mem_clock MHz</mem_clock>
			<video_clock>$max_video_clock MHz</video_clock>
		</max_clocks>
		<max_customer_boost_clocks>
			<graphics_clock>$max_clock MHz</graphics_clock>
		</max_customer_boost_clocks>
		<clock_policy>
			<auto_boost>N/A</auto_boost>
			<auto_boost_default>N/A</auto_boost_default>
		</clock_policy>
		<fabric>
			<state>$fabric_state</state>
			<status>$fabric_status</status>
			<cliqueId>$fabric_clique</cliqueId>
			<clusterUuid>$fabric_cluster</clusterUuid>
			<health>
				<summary>N/A</summary>
				<bandwidth>N/A</bandwidth>
				<route_recovery_in_progress>N/A</route_recovery_in_progress>
				<route_unhealthy>N/A</route_unhealthy>
				<access_timeout_recovery>N/A</access_timeout_recovery>
				<incorrect_configuration>N/A</incorrect_configuration>
			</health>
		</fabric>
		<supported_clocks>
			<supported_mem_clock>
				<value>$max_mem_clock MHz</value>
				<supported_graphics_clock>$max_clock MHz</supported_graphics_clock>
			</supported_mem_clock>
		</supported_clocks>
		<processes>$Programs
		</processes>
		<accounted_processes>
		</accounted_processes>
		<capabilities>
			<egm>disabled</egm>
		</capabilities>
	</gpu>
"
    File=$File_next
    Open=
}
