// The MCP server of examples/mcp.R, as the protocol's own client speaks with it.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

import { Server, patience } from './support/server.mjs';

const timeout = 4 * patience;
let server;
let url;

before(async () => {
  server = await Server.script('examples/mcp.R');
  url = new URL('/mcp', server.url);
}, { timeout });

after(() => Server.stopAll());

async function connected() {
  const client = new Client({ name: 'test', version: '1' });
  const transport = new StreamableHTTPClientTransport(url);
  const news = [];
  client.setNotificationHandler(LoggingMessageNotificationSchema, (it) => news.push(it.params.data));
  await client.connect(transport);
  return { client, transport, news };
}

// A request as it is on the wire.
const post = (message, headers = {}) => fetch(url, {
  method: 'POST',
  headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers },
  body: typeof message === 'string' ? message : JSON.stringify({ jsonrpc: '2.0', ...message }),
});

async function session() {
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'wire', version: '1' } };
  const answer = await post({ id: 1, method: 'initialize', params });
  assert.equal(answer.status, 200);
  assert.equal((await answer.json()).result.protocolVersion, '2025-11-25');
  return { 'mcp-session-id': answer.headers.get('mcp-session-id'), 'mcp-protocol-version': '2025-11-25' };
}

test('initialize, tools/list, tools/call, and news over the stream of a GET', { timeout }, async () => {
  const { client, transport, news } = await connected();
  assert.match(transport.sessionId, /^[0-9a-f]{32}$/);
  assert.equal(client.getServerVersion().name, 'rookery-example');
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name), ['summarise', 'estimate_pi']);
  assert.deepEqual(tools[0].inputSchema.required, ['data', 'column']);
  const answer = await client.callTool({ name: 'summarise', arguments: { data: 'mtcars', column: 'mpg' } });
  assert.match(answer.content[0].text, /Median.*\n.*19[.]20/);
  const wrong = await client.callTool({ name: 'summarise', arguments: { data: 'mtcars', column: 'none' } });
  assert.equal(wrong.isError, true);
  await assert.rejects(client.callTool({ name: 'nothing', arguments: {} }), /no such tool/);
  const end = Date.now() + patience;
  while (news.length === 0 && Date.now() < end) await new Promise((done) => { setTimeout(done, 20); });
  assert.match(news[0], /^R [0-9.]+ is at your service$/);
  await transport.terminateSession();
  await client.close();
});

test('a long call tells its progress while it runs', { timeout }, async () => {
  const { client } = await connected();
  const seen = [];
  const answer = await client.callTool(
    { name: 'estimate_pi', arguments: { slices: 200 } },
    undefined,
    { onprogress: ({ progress, total }) => seen.push({ progress, total, at: performance.now() }), timeout },
  );
  assert.match(answer.content[0].text, /^3[.][01]/);
  assert.deepEqual(seen.map((it) => it.progress), Array.from({ length: 200 }, (_, i) => i + 1));
  assert.ok(seen.every((it) => it.total === 200));
  // Not all at the end: two seconds of pauses lie between the first and the last.
  assert.ok(seen[199].at - seen[0].at > 50, 'they came one by one');
  await client.close();
});

test('a call can be cancelled, and has no answer then', { timeout }, async () => {
  const { client } = await connected();
  const stop = new AbortController();
  let seen = 0;
  await assert.rejects(client.callTool({ name: 'estimate_pi', arguments: { slices: 1000 } }, undefined, {
    signal: stop.signal,
    timeout,
    onprogress: () => {
      seen += 1;
      if (seen === 3) stop.abort('enough');
    },
  }));
  assert.equal((await client.callTool({ name: 'summarise', arguments: { data: 'iris', column: 'Species' } })).isError, false);
  assert.ok(seen < 900);
  await client.close();
});

test('who lost the connection gets the rest, and nothing twice', { timeout }, async () => {
  const headers = await session();
  const stop = new AbortController();
  const params = { name: 'estimate_pi', arguments: { slices: 30 }, _meta: { progressToken: 'p' } };
  const call = await fetch(url, {
    method: 'POST',
    signal: stop.signal,
    headers: { ...headers, 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'tools/call', params }),
  });
  assert.match(call.headers.get('content-type'), /^text\/event-stream/);
  let text = '';
  const decoder = new TextDecoder();
  for await (const bytes of call.body) {
    text += decoder.decode(bytes, { stream: true });
    if (text.split('"progress":').length > 3) break;
  }
  stop.abort();
  const events = (all) => [...all.matchAll(/id: (\S+)\ndata: (.*)\n\n/g)].map(([, id, data]) => ({ id, data }));
  const first = events(text);
  // The first one has an id and no data.
  assert.deepEqual(first[0], { id: 'call-1/1', data: '' });
  const rest = await fetch(url, {
    headers: { ...headers, accept: 'text/event-stream', 'last-event-id': first.at(-1).id },
  });
  assert.equal(rest.status, 200);
  const all = [...first, ...events(await rest.text())];
  assert.deepEqual(all.map((it) => it.id), Array.from({ length: 32 }, (_, i) => `call-1/${i + 1}`));
  const result = JSON.parse(all.at(-1).data);
  assert.equal(result.id, 7);
  assert.match(result.result.content[0].text, /^3[.]/);
});

test('sessions begin, are asked for, and end', { timeout }, async () => {
  const list = { id: 2, method: 'tools/list' };
  assert.equal((await post(list)).status, 400);
  assert.equal((await post(list, { 'mcp-session-id': 'unknown' })).status, 404);
  const headers = await session();
  assert.equal((await post(list, headers)).status, 200);
  assert.equal((await post(list, { ...headers, 'mcp-protocol-version': '1999-01-01' })).status, 400);
  assert.equal((await post({ method: 'notifications/whatever' }, headers)).status, 202);
  assert.equal((await (await post({ id: 3, method: 'no/such' }, headers)).json()).error.code, -32601);
  assert.equal((await post('no JSON', headers)).status, 400);
  assert.equal((await fetch(url, { headers })).status, 406);
  const accept = { ...headers, accept: 'text/event-stream' };
  assert.equal((await fetch(url, { headers: { ...accept, 'last-event-id': 'call-9/1' } })).status, 404);
  assert.equal((await fetch(url, { headers: { ...accept, 'last-event-id': '../etc' } })).status, 404);
  assert.equal((await fetch(url, { method: 'PUT', headers })).status, 405);
  assert.equal((await fetch(url, { method: 'DELETE', headers })).status, 204);
  assert.equal((await post(list, headers)).status, 404);
});

test('a page of another site is refused', { timeout }, async () => {
  const initialize = { id: 1, method: 'initialize', params: {} };
  for (const origin of ['https://evil.example', 'http://localhost.evil.example', 'null', 'http://127.0.0.1.evil.example:80']) {
    assert.equal((await post(initialize, { origin })).status, 403, origin);
  }
  assert.equal((await post(initialize, { origin: 'http://localhost:3000' })).status, 200);
});
