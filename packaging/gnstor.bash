# bash completion of gnstor and gnstord: subcommands and options are those that --help of the very program lists.
_gnstor() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}" program="${COMP_WORDS[0]}"
    local words=() word help values
    COMPREPLY=()
    # The subcommands that lead here: only words that --help lists as subcommands of those before.
    help="$("$program" --help 2>/dev/null)" || return 0
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if sed -n '/^Subcommands:/,$p' <<<"$help" | grep -qE "^  ${word//[^[:alnum:]_-]/} "; then
            words+=("$word")
            help="$("$program" "${words[@]}" --help 2>/dev/null)" || return 0
        fi
    done
    # The values of the option before, where --help names them: "TEXT:{table,json}", or "process|power" in its sentence.
    if [[ "$previous" == -* ]]; then
        values="$(grep -E "^  (-[a-z],)?${previous//[^[:alnum:]-]/}( |$)" <<<"$help" | sed -nE 's/.*\{([^}]*)\}.*/\1/p; s/.* ([a-z]+(\|[a-z]+)+)  .*/\1/p' | tr ',|' '  ')"
        if [[ -n "$values" ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
            return 0
        fi
    fi
    if [[ "$current" == -* ]]; then
        local general=""
        # Options of gnstor itself may stand behind a subcommand, too.
        [[ ${#words[@]} == 0 ]] || general="$("$program" --help 2>/dev/null)"
        mapfile -t COMPREPLY < <(compgen -W "$(grep -oE '^  (-[a-z],)?--[a-z0-9-]+' <<<"$help"$'\n'"$general" | grep -oE -- '--[a-z0-9-]+')" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -W "$(sed -n '/^Subcommands:/,$s/^  \([a-z-]*\) .*/\1/p' <<<"$help")" -- "$current")
        # Elsewhere files may stand: readline completes those (-o default).
    fi
}
complete -o default -F _gnstor gnstor gnstord
