#!/usr/bin/env python3
"""Which lines of a guest's kernel fail a scenario, and which do not."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kernel_log import CONNECTION_LOST, judge, went_back  # noqa: E402

REMOVING = '<6>[   27.069427] nvme nvme0: Removing ctrl: NQN "nqn.2026-11.io.gnstor:volume:disk"'
CREATING = "<6>[   28.000000] nvme nvme0: creating 1 I/O queues."
RTT = "<4>[   27.164592] nvme nvme0: long keepalive RTT (4294709152 ms)"
KEEP_ALIVE = "<3>[   27.164843] nvme nvme0: failed nvme_keep_alive_end_io error=4"


class Judge(unittest.TestCase):
    def wrong(self, *lines, expected=()):
        return judge("\n".join(lines), expected)[1]

    def test_a_warning_by_its_level_or_by_its_words_is_wrong(self):
        for line in ("<4>[    1.000000] something odd", "<6>[   12.345678] rdma_rxe: rxe_reg_fast_mr failed", "<6>[    1.000000] WARNING: CPU: 0 PID: 1",
                     "<3>[    1.000000] nvme nvme0: I/O 5 QID 1 timeout", "not a line of a kernel"):
            self.assertEqual(self.wrong(line), [line])
        self.assertEqual(self.wrong(CREATING, RTT, "<6>[   10.354922] nvme nvme0: Shutdown timeout set to 30 seconds",
                                    "<5>[    7.836630] Key type psk registered"), [])

    def test_what_is_expected_is_expected_as_a_whole_line(self):
        line = "<3>[    1.000000] nvme nvme0: Failed reconnect attempt 3"
        self.assertEqual(self.wrong(line, expected=[r"nvme nvme0: Failed reconnect attempt \d+"]), [])
        self.assertEqual(self.wrong(line, expected=["nvme nvme0: Failed reconnect"]), [line])

    def test_a_keep_alive_that_a_disconnect_ends_is_no_failure(self):
        self.assertEqual(self.wrong(REMOVING, RTT, KEEP_ALIVE), [])

    def test_any_other_keep_alive_that_fails_is(self):
        self.assertEqual(self.wrong(KEEP_ALIVE, REMOVING), [KEEP_ALIVE])
        self.assertEqual(self.wrong(REMOVING, CREATING, KEEP_ALIVE), [KEEP_ALIVE])
        self.assertEqual(self.wrong(REMOVING.replace("nvme0", "nvme1"), KEEP_ALIVE), [KEEP_ALIVE])

    def test_a_connection_that_the_hosts_own_rxe_lost_is_no_failure_and_any_other_is(self):
        defect = "<4>[  369.110750] rdma_rxe: rxe_reg_fast_mr: mr->lkey = 0x2a84 not free"
        lost = ("<4>[  400.370240] nvme nvme0: I/O 69 QID 1 timeout", "<4>[  400.379437] nvme nvme0: starting error recovery")
        block_error = "<3>[  401.000000] blk_update_request: I/O error, dev nvme0n1, sector 8"

        def wrong(*lines):
            return self.wrong(*lines, expected=CONNECTION_LOST if went_back("\n".join(lines)) else ())
        self.assertEqual(wrong(defect, *lost), [])
        self.assertEqual(wrong(*lost), list(lost))
        self.assertEqual(wrong(defect, *lost, block_error), [block_error])
        self.assertEqual([went_back("\n".join(lines)) for lines in (lost, (defect,), (defect, *lost), (defect, *lost, defect, *lost))], [0, 1, 1, 2])

    def test_all_lines_are_told_without_their_level_and_time(self):
        self.assertEqual(judge(f"{CREATING}\nodd")[0], ["nvme nvme0: creating 1 I/O queues.", "odd"])


if __name__ == "__main__":
    unittest.main()
