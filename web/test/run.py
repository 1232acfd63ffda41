"""All tests of the dashboard, within the sandbox (make test TESTS=web). Ends with `N passed, N failed`.

  WEB         the test modules to run; default: all
  PICTURES=1  writes docs/pictures/dashboard-*.png of the sandbox's tree, too (make test TESTS=web KEEP=1)
"""
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


def main():
    built = subprocess.run(['make', '-s', '-j2', '-C', os.path.dirname(HERE), 'queue_jobs_web', 'sanitize', 'CFLAGS=-O1 -g -Werror'])
    if built.returncode != 0:
        print('0 passed, 1 failed')
        return 1
    modules = (os.environ.get('WEB') or 'test_fuzz test_protocol test_login test_browser').split()
    suite = unittest.defaultTestLoader.loadTestsFromNames(modules)
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    bad = len(result.failures) + len(result.errors)
    print('%d passed, %d failed' % (result.testsRun - len(result.skipped) - bad, bad))
    return 0 if bad == 0 else 1


sys.exit(main())
