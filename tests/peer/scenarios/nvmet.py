"""The guest's own target: a RAM-backed block device exported by nvmet over rxe."""
from common import GUEST_ADDRESS

NQN = "nqn.2014-08.org.nvmexpress:uuid:6a1f5a4e-5f0b-4d5c-9a55-0c1d2e3f4a5b"
PORT = 4420
SIZE_GB = 1


def export(guest):
    """Exports a null_blk device of SIZE_GB as namespace 1 of NQN at GUEST_ADDRESS:PORT."""
    guest.run(f"""set -e
        modprobe null_blk nr_devices=1 memory_backed=1 gb={SIZE_GB} bs=512 submit_queues=2
        modprobe nvmet_rdma
        subsystem=/sys/kernel/config/nvmet/subsystems/{NQN}
        mkdir $subsystem
        echo 1 >$subsystem/attr_allow_any_host
        mkdir $subsystem/namespaces/1
        echo /dev/nullb0 >$subsystem/namespaces/1/device_path
        echo 1 >$subsystem/namespaces/1/enable
        port=/sys/kernel/config/nvmet/ports/1
        mkdir $port
        echo rdma >$port/addr_trtype
        echo ipv4 >$port/addr_adrfam
        echo {GUEST_ADDRESS} >$port/addr_traddr
        echo {PORT} >$port/addr_trsvcid
        ln -s $subsystem $port/subsystems/""", 60)


def demand_key(guest, host_nqn, host_key, target_key="", hash_name="sha256", group="ffdhe2048"):
    """From the next controller on: this host alone is let in, with this key; with `target_key` the target can prove its own."""
    guest.run(f"""set -e
        host=/sys/kernel/config/nvmet/hosts/{host_nqn}
        subsystem=/sys/kernel/config/nvmet/subsystems/{NQN}
        if [ -d $host ]; then rm -f $subsystem/allowed_hosts/{host_nqn}; rmdir $host; fi
        mkdir $host
        echo '{host_key}' >$host/dhchap_key
        [ -z '{target_key}' ] || echo '{target_key}' >$host/dhchap_ctrl_key
        echo 'hmac({hash_name})' >$host/dhchap_hash
        echo {group} >$host/dhchap_dhgroup
        echo 0 >$subsystem/attr_allow_any_host
        ln -s $host $subsystem/allowed_hosts/{host_nqn}""", 60)


def allow_any_host(guest):
    guest.run(f"""set -e
        subsystem=/sys/kernel/config/nvmet/subsystems/{NQN}
        rm -f $subsystem/allowed_hosts/*
        echo 1 >$subsystem/attr_allow_any_host""", 60)
