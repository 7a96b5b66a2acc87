
list() {
    each_gpu list_gpu list_part
}

list_gpu() {
    say "GPU $Index: $name (UUID: $uuid)"
}

list_part() {
    printf '  MIG %-11s Device %2s: (UUID: %s)\n' "$mig_profile" "$Part" "$mig_uuid"
}

version() {
    printf '%-20s: %s\n' 'NVIDIA-SMI version' "$driver" 'NVML version' "${driver%.*}" 'DRIVER version' "$driver" \
        'CUDA Version' "$cuda"
}
