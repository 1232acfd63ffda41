"""The parsers of requests under random input, with AddressSanitizer and UndefinedBehaviorSanitizer."""
import os
import subprocess
import unittest

from support import HERE


class Fuzz(unittest.TestCase):
    def test_parsers(self):
        result = subprocess.run([os.path.join(HERE, 'fuzz'), '4'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        # Where the system does not let it trace threads, the leak checker says so.
        if 'LeakSanitizer has encountered a fatal error' not in result.stdout:
            self.assertEqual(result.returncode, 0, result.stdout)
        self.assertNotIn('runtime error', result.stdout)
        self.assertGreater(int(result.stdout.split()[0]), 100)
