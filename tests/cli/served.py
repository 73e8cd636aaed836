"""What tests of gnstord's TCP interface share: a gnstord in the foreground of the test, and the address that it says it serves."""
import os
import re
import select
import subprocess

from programs import DEADLINE_S, GNSTORD, Programs


class Served(Programs):
    def setUp(self):
        super().setUp()
        self.served = []
        for name in ("GNSTOR_ARRAY", "GNSTOR_TOKEN_FILE", "GNSTOR_TLS_CA", "GNSTOR_TLS_FINGERPRINT"):
            self.env.pop(name, None)

    def tearDown(self):
        for process in self.served:
            self.end(process)
        super().tearDown()

    def end(self, process):
        # Children are reaped here: `down` would wait for the one that nobody reaps.
        process.terminate()
        process.wait(DEADLINE_S)
        if process.stderr:
            process.stderr.close()

    def serve(self, *words, listen="127.0.0.1:0"):
        """gnstord in the foreground of this test; returns once it serves TCP and then its socket: process, address of the former."""
        process = subprocess.Popen([GNSTORD, "--dir", str(self.dir), "--ssds", "2", "--capacity", "64MiB", "--listen", listen, *words],
                                   stderr=subprocess.PIPE, env=self.env)
        self.served.append(process)
        said = b""
        while b".sock\n" not in said:  # the socket answers last
            self.assertTrue(select.select([process.stderr], [], [], DEADLINE_S)[0], said)
            piece = os.read(process.stderr.fileno(), 4096)
            self.assertTrue(piece, said)
            said += piece
        self.said = said.decode()
        return process, re.search(r"on (https?://[^ ]+:\d+), with", self.said)[1]
