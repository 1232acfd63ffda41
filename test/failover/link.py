"""link.py HOST:PORT=PORT …: passes connections to HOST:PORT on to 127.0.0.1:PORT. All that a node says and hears goes through one
such process. Stopped by SIGSTOP it is a network that drops packets: connections stay open, and nothing comes."""
import asyncio
import sys


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


async def serve(link):
    here, port = link.split('=')
    host, own = here.split(':')

    async def connected(reader, writer):
        try:
            there_reader, there_writer = await asyncio.open_connection('127.0.0.1', int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))

    return await asyncio.start_server(connected, host, int(own))


async def main():
    servers = [await serve(link) for link in sys.argv[1:]]
    await asyncio.gather(*(server.serve_forever() for server in servers))

asyncio.run(main())
