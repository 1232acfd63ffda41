"""Peers that have to be installed. What cannot be is left out, and said so."""
from peers.node import GraphileWorker, PgBoss
from peers.pgq import PgQ

PEERS = {peer.name: peer for peer in (GraphileWorker, PgBoss, PgQ)}


def find_peers(bench):
    found = {}
    for peer in PEERS.values():
        if peer.name not in bench.competitors:
            continue
        try:
            found[peer.name] = peer(bench)
        except Exception as problem:
            bench.notes.append(f"{peer.name} is left out: {str(problem).strip().splitlines()[-1] if str(problem).strip() else type(problem).__name__}")
    return found
