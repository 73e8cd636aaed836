#!/bin/sh
# guest_init.sh: process 1 of the guest. Mounts what a system has, loads the drivers of its virtual devices, then executes
# what the harness sends over a virtio port, one shell script at a time, until the harness ends the machine.
#
# A request is one line "ID SECONDS SCRIPT-IN-BASE64"; the answer is a line "ID STATUS BYTES" and so many bytes of output.
# A second port does the same beside it, so that a guest whose first port hangs can still be asked what it hangs in.
export PATH=/usr/sbin:/usr/bin

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
modprobe -a virtio_pci virtio_console virtio_net configfs
mount -t configfs configfs /sys/kernel/config
ip link set lo up

# serve NUMBER: never returns. The name of a port's device begins with the number that its virtio device happened to get.
serve() {
    until port=$(ls /dev/vport*p"$1") 2>/dev/null; do sleep 0.1; done
    exec 3<>"$port"
    folder=/run/port$1
    mkdir -p "$folder"
    printf 'ready %s\n' "$(uname -r)" >&3
    while read -r id seconds script <&3; do
        printf '%s' "$script" | base64 -d >"$folder/script"
        timeout -s KILL "$seconds" sh "$folder/script" </dev/null 3>&- >"$folder/output" 2>&1
        printf '%s %s %s\n' "$id" "$?" "$(stat -c %s "$folder/output")" >&3
        cat "$folder/output" >&3
    done
    poweroff -f
}

serve 2 &
serve 1
