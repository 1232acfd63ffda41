"""The pictures of docs/how-to/dashboard.md, of the shop that `make web-demo` shows. Written when PICTURES is set."""
import os
import subprocess

from support import WEB, Dashboard
from webdriver import wait_until

ROOT = os.path.dirname(WEB)
FOLDER = os.path.join(ROOT, 'docs', 'pictures')
SECONDS = 100       # of load, so that the curves are more than a dot


def take(server, dashboard, browser):
    server.psql('CREATE DATABASE shop')
    for file in ['test/demo/shop.sql', 'web/demo.sql']:
        subprocess.run(['psql', '-X', '-q', '-h', server.folder, '-U', 'postgres', '-d', 'shop', '-f', os.path.join(ROOT, file)], check=True)
    shop = Dashboard(server, 'dbname=shop')
    try:
        sql = lambda text: server.run('psql', '-XAtq', '-h', server.folder, '-U', 'postgres', '-d', 'shop', '-c', text).strip()
        browser.go(shop.url + '/')
        wait_until(lambda: float(sql('SELECT extract(epoch FROM now() - min(created_at)) FROM queue_jobs.job')) > SECONDS, 'there is something to see')
        pages = {'overview': '/', 'job': '/jobs/' + sql("SELECT id FROM queue_jobs.job WHERE state IN ('dead', 'retryable') ORDER BY state = 'dead', attempt DESC, id LIMIT 1")}
        batch = server.has('batch') and sql("SELECT min(id) FROM queue_jobs.batch WHERE name = 'nightly'")
        if batch:
            pages['workflow'] = '/batches/' + batch
        for name, path in pages.items():
            browser.go(shop.url + path)
            browser.one('main')
            browser.screenshot(os.path.join(FOLDER, 'dashboard-%s.png' % name))
    finally:
        shop.stop()
