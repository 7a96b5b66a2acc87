
# The summary, as drivers from 550 on draw it.
table() {
    Line='-----------------------------------------'
    Rule="+$Line+------------------------+----------------------+"
    Wide="+$Line------------------------------------------------+"
    Major=${driver%%.*}
    printf '%-31s\n' "$Now"
    say "$Wide"
    printf '| NVIDIA-SMI %-23sDriver Version: %-15sCUDA Version: %-9s|\n' "$driver" "$driver" "$cuda"
    if [ "$Major" -ge 580 ]; then say "$Rule"; else say "|${Rule#?}" | { read -r Text; say "${Text%?}|"; }; fi
    say '| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|'
    Cut=
    each_gpu table_gpu
    [ -z "$Cut" ] || table_mig
    say ''
    say "$Wide"
    say '| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|'
    Any=
    each_gpu table_process table_part_process
    [ -n "$Any" ] || say '|  No running processes found                                                             |'
    say "$Wide"
}

# The number of $1 without what comes after the point.
whole() {
    Whole=${1%%.*}
}

table_gpu() {
    Title=$name
    [ ${#Title} -le 27 ] || Title=$(printf '%.24s...' "$name")
    On=On
    [ "$persistence" = Enabled ] || On=Off
    Errors=$uncorrected
    [ "$ecc" = Enabled ] || Errors=N/A
    [ "$ecc" != Disabled ] || Errors=Off
    if [ "$mig" = Enabled ]; then
        Errors=On
        Cut=yes
    fi
    printf '| %3s  %-27s    %-3s |   %16s %3s | %20s |\n' "$Index" "$Title" "$On" "$bus_id" Off "$Errors"
    Fan=$fan
    [ "$fan" = N/A ] || Fan="$fan%"
    Busy=$util
    [ "$util" = N/A ] || Busy="$util%"
    whole "$power"
    Draw=${Whole}W
    whole "$power_limit"
    printf '| %3s%6s%6s%16s / %5s | %10s / %9s | %7s%13s |\n' "$Fan" "${temp}C" "$pstate" "$Draw" "${Whole}W" \
        "${used}MiB" "${total}MiB" "$Busy" Default
    printf '|%41s|%24s| %20s |\n' '' '' "$mig"
    say "$Rule"
}

table_mig() {
    say ''
    say "$Wide"
    Thin='+------------------+----------------------------------+-----------+-----------------------+'
    say '| MIG devices:                                                                            |'
    say "$Thin"
    if [ "$Major" -ge 580 ]; then
        say '| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |'
    else
        say '| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|      Shared           |
|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |'
    fi
    say '|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|'
    each_gpu : table_part
}

table_part() {
    printf '| %2s   %2s  %2s  %2s  |%19s / %8s    |%3s%7s |%3s %3s %4s %4s %4s |\n' "$Index" "$mig_gi" "$mig_ci" "$Part" \
        "${mig_used}MiB" "${mig_total}MiB" "$mig_sms" "$mig_uncorrected" "$mig_ce" "$mig_enc" "$mig_dec" "$mig_ofa" \
        "$mig_jpg"
    printf '|%18s|%19s / %8s    |           |                       |\n' '' 0MiB "${mig_bar1}MiB"
    say "$Thin"
}

table_process() {
    [ -z "$mig_uuid" ] || return
    Gi=N/A
    Ci=N/A
    table_program
}

table_part_process() {
    Gi=$mig_gi
    Ci=$mig_ci
    table_program
}

table_program() {
    tell_process
    [ -n "$Process" ] || return
    Any=yes
    while [ ${#Process} -gt 32 ]; do
        Process=...${Process#????}
    done
    printf '|%5s   %3s  %3s%16s%7s   %-36s%10s |\n' "$Index" "$Gi" "$Ci" "$Pid" C "$Process" "${process_memory}MiB"
}
