// Sessions of Shiny behind several Rs: none is ever answered by another R than its own.
//
// ROOKERY_SESSIONS (200) are opened; ROOKERY_RELOADS (1) is how often all Rs are replaced meanwhile. `make soak` has 1,000 and 20.

import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { after, test } from 'node:test';

import { Server, library, patience } from './support/server.mjs';
import { ShinyClient, get } from './support/shiny-client.mjs';

const sessions = Number(process.env.ROOKERY_SESSIONS ?? 200);
const reloads = Number(process.env.ROOKERY_RELOADS ?? 1);
const workers = 4;
/** Clients at a time. */
const hands = 16;

after(() => Server.stopAll());

/** Calls `body` for each of `all`, some at a time. */
async function each(all, body) {
  const left = all.values();
  await Promise.all(Array.from({ length: hands }, async () => {
    for (const one of left) await body(one);
  }));
}

test(`${sessions} sessions, ${reloads} reloads and a kill, and none at the wrong R`, {
  timeout: 10 * patience + sessions * 500, skip: library ? false : "with Debian's httpuv there is no rookery",
}, async () => {
  const server = Server.command([
    'serve', 'tests/browser/apps/workers', '--port', '0', '--log=none', '--workers', String(workers), '--drain', '1h',
    // On a busy machine, the first page of each R takes seconds, and others wait for it.
    '--queue-timeout', '2min',
  ]);
  const base = (await server.line(/^Serving on (http:\S+)/))[1];
  await server.line(/worker \d+ \(\d+\) is ready/, workers);
  const agent = new Agent({ keepAlive: true, maxSockets: hands });
  const clients = [];
  await each(Array(sessions).fill(), async () => clients.push(await ShinyClient.open(base, agent)));
  const counts = new Map();
  for (const { pid } of clients) counts.set(pid, (counts.get(pid) ?? 0) + 1);
  assert.equal(counts.size, workers);
  // A page goes to a worker that is idle, if there is one, and the numbers of sessions decide only between workers that are equally
  // free: pages that come at the same time are therefore not spread exactly.
  const least = Math.min(...counts.values());
  assert.ok(least >= sessions / workers / 2, `${least} sessions at one of ${workers} workers, of ${sessions}`);

  let asked = 0;
  const wrong = [];
  const askAll = async (those, ways) => each(those, async (client) => {
    for (const way of ways) {
      const { status, body } = await client.ask(way);
      asked += 1;
      if (status !== 200 || body.trim() !== client.pid) wrong.push(`${status} ${body.trim()} instead of ${client.pid}`);
    }
  });
  const all = [{}, { withCookie: false }, { withWorker: false }];
  await askAll(clients, all);
  assert.deepEqual(wrong, []);

  // Rs that are replaced keep the sessions that they have, and new ones go to others.
  for (let generation = 1; generation <= reloads; generation += 1) {
    server.tell('SIGHUP');
    const reloaded = server.line(new RegExp(`reloaded: all workers are of generation ${generation}$`));
    let isReloaded = false;
    const asking = (async () => { while (!isReloaded) await askAll(clients.slice(0, 2 * hands), all); })();
    await reloaded;
    isReloaded = true;
    await asking;
    // One of the Rs that were replaced may have nothing left but what these have.
    const page = await get(`${base}/`, { agent, cookie: clients[0].cookie, accept: 'text/html' });
    assert.ok(!counts.has(page.body.match(/id="made-by">(\d+)</)[1]), 'a new page is a new R’s');
  }
  await askAll(clients, all);
  assert.deepEqual(wrong, []);

  // An R that is killed takes its sessions along, and no other.
  const [victim] = clients;
  process.kill(Number(victim.pid), 'SIGKILL');
  const lost = clients.filter(({ pid }) => pid === victim.pid);
  const kept = clients.filter(({ pid }) => pid !== victim.pid);
  await Promise.all(lost.map(({ socket }) => socket.closed || new Promise((done) => { socket.once('close', done); })));
  assert.deepEqual([...new Set(lost.map(({ closed }) => closed))], [1012]);
  await askAll(kept, all);
  assert.deepEqual(wrong, []);
  assert.deepEqual(kept.filter(({ closed }) => closed !== null), []);
  await each(lost, async (client) => {
    const statuses = await Promise.all(all.map(async (way) => (await client.ask(way)).status));
    assert.deepEqual(statuses, [404, 404, 404]);
  });
  console.log(`${asked} requests of ${clients.length} sessions, ${reloads} reloads, ${wrong.length} at the wrong R; `
    + `at first ${least} sessions at the emptiest worker`);
  clients.forEach((client) => client.close());
  agent.destroy();
  await server.stop();
});
