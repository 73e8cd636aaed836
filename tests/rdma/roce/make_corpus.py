#!/usr/bin/env python3
"""Writes the seed inputs of fuzz_roce_packet and fuzz_roce_cm (corpus/) from what a Linux kernel sent
(kernel_packets.hpp). Run it when packets are added there."""
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
IP_AND_UDP, BTH_AND_DETH, MAD = 28, 20, 256


def packets():
    """Names and datagrams, IP header to ICRC."""
    text = (HERE / "kernel_packets.hpp").read_text()
    for name, body in re.findall(r"string_view kKernel(\w+) =\s*((?:\"[0-9a-f]+\"\s*)+);", text):
        yield re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower(), bytes.fromhex("".join(re.findall(r"[0-9a-f]+", body)))


def main():
    for name, datagram in packets():
        seeds = {("roce_packet", name): datagram, ("roce_packet", name + "_payload"): datagram[IP_AND_UDP:]}
        mad = datagram[IP_AND_UDP + BTH_AND_DETH:-4]
        if len(mad) == MAD:
            seeds["roce_cm", name] = mad
        for (fuzzer, seed), data in seeds.items():
            folder = HERE / "corpus" / fuzzer
            folder.mkdir(parents=True, exist_ok=True)
            (folder / seed).write_bytes(data)


main()
