
# What is told is a tree: `open` begins a branch, `close` ends it, the others are leaves. It is written as JSON or as
# indented text, whatever $Format says.
comma() {
    [ -z "$Begun" ] || printf ','
    [ -z "$Begun$1" ] || say ''
    Begun=yes
}

open() {
    if [ "$Format" = json ]; then
        comma "$Depth"
        printf '%s"%s": {\n' "$Depth" "$1"
    else
        title "$1"
        say "$Depth$Title:"
    fi
    Depth="$Depth    "
    Begun=
}

close() {
    Depth=${Depth%    }
    [ "$Format" != json ] || printf '\n%s}' "$Depth"
    Begun=yes
}

# Upper-case $1, as the text has it.
title() {
    Title=
    Text=$1
    while [ -n "$Text" ]; do
        Tail=${Text#?}
        case ${Text%"$Tail"} in
            a) Title=${Title}A ;; b) Title=${Title}B ;; c) Title=${Title}C ;; d) Title=${Title}D ;;
            e) Title=${Title}E ;; f) Title=${Title}F ;; g) Title=${Title}G ;; h) Title=${Title}H ;;
            i) Title=${Title}I ;; j) Title=${Title}J ;; k) Title=${Title}K ;; l) Title=${Title}L ;;
            m) Title=${Title}M ;; n) Title=${Title}N ;; o) Title=${Title}O ;; p) Title=${Title}P ;;
            q) Title=${Title}Q ;; r) Title=${Title}R ;; s) Title=${Title}S ;; t) Title=${Title}T ;;
            u) Title=${Title}U ;; v) Title=${Title}V ;; w) Title=${Title}W ;; x) Title=${Title}X ;;
            y) Title=${Title}Y ;; z) Title=${Title}Z ;; *) Title=$Title${Text%"$Tail"} ;;
        esac
        Text=$Tail
    done
}

# A text, a number, and a number with a unit; N/A is a text wherever it stands.
text() {
    if [ "$Format" = json ]; then
        comma "$Depth"
        escape "$2"
        printf '%s"%s": "%s"' "$Depth" "$1" "$Escaped"
    else
        title "$1"
        say "$Depth$Title: $2"
    fi
}

number() {
    if [ "$2" = N/A ] || [ "$Format" != json ]; then
        text "$1" "$2"
    else
        comma "$Depth"
        printf '%s"%s": %s' "$Depth" "$1" "$2"
    fi
}

measure() {
    if [ "$2" = N/A ]; then
        text "$1" N/A
    elif [ "$Format" = json ]; then
        open "$1"
        number value "$2"
        text unit "$3"
        close
    else
        title "$1"
        say "$Depth$Title: $2 $3"
    fi
}

# A list of $4 measures of which the first $5 are known.
measures() {
    Number=0
    Row=
    if [ "$Format" = json ]; then
        comma "$Depth"
        printf '%s"%s": [\n' "$Depth" "$1"
        while [ "$Number" -lt "$4" ]; do
            [ "$Number" = 0 ] || printf ',\n'
            if [ "$Number" -lt "$5" ]; then
                printf '%s    {\n%s        "value": %s,\n%s        "unit": "%s"\n%s    }' "$Depth" "$Depth" "$2" "$Depth" "$3" "$Depth"
            else
                printf '%s    "N/A"' "$Depth"
            fi
            Number=$((Number + 1))
        done
        printf '\n%s]' "$Depth"
    else
        while [ "$Number" -lt "$4" ]; do
            Value=N/A
            [ "$Number" -ge "$5" ] || Value="$2 $3"
            Row="$Row${Row:+, }$Value"
            Number=$((Number + 1))
        done
        title "$1"
        say "$Depth$Title: [$Row]"
    fi
}

# Every device of a command: $1 prints the inside of one. $2 is the key of the list, or nothing.
devices() {
    Inside=$1
    Wrapped=$2
    Depth=
    First=yes
    if [ "$Format" = json ]; then
        if [ -n "$Wrapped" ]; then
            printf '{\n    "%s": [\n' "$Wrapped"
            Depth='    '
        else
            say '['
        fi
    fi
    each_gpu one_device
    if [ "$Format" = json ]; then
        say ''
        if [ -n "$Wrapped" ]; then printf '    ]\n}\n'; else say ']'; fi
    fi
}

one_device() {
    if [ "$Format" = json ]; then
        [ -n "$First" ] || say ','
        First=
        printf '%s    {\n%s        "gpu": %s' "$Depth" "$Depth" "$Index"
        Begun=yes
        Outer=$Depth
        Depth="$Depth        "
        $Inside
        Depth=$Outer
        printf '\n%s    }' "$Depth"
    else
        say "GPU: $Index"
        Depth='    '
        $Inside
        Depth=
        say ''
    fi
}
