// Server-sent events in a page: apps/events.R sends them, Chromium's EventSource takes them.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, open, useBrowser } from './support/browser.mjs';
import { Server, patience } from './support/server.mjs';

const timeout = 4 * patience;
let server;

useBrowser(async () => {
  server = await Server.script('tests/browser/apps/events.R');
});

// Opens an EventSource in the page and notes what it tells.
const listen = (page, path, names = []) => page.evaluate(([from, named]) => {
  window.seen = [];
  window.source = new EventSource(from);
  source.addEventListener('open', () => seen.push('open'));
  source.addEventListener('error', () => seen.push(source.readyState === EventSource.CLOSED ? 'over' : 'again'));
  for (const name of ['message', ...named]) {
    source.addEventListener(name, (event) => seen.push({ name, data: event.data, id: event.lastEventId }));
  }
}, [path, names]);

const seen = (page) => page.evaluate(() => window.seen);

const until = (page, what) => page.waitForFunction(what);

const ask = async (path) => (await fetch(server.url + path)).text();

async function untilAsked(path, wanted) {
  const end = Date.now() + patience;
  let found;
  while ((found = await ask(path)) !== wanted) {
    assert.ok(Date.now() < end, `${path} is ${found}, not ${wanted}`);
    await new Promise((done) => { setTimeout(done, 20); });
  }
}

test('a page opens before the first event, and goes on where it was cut', { timeout }, async () => {
  const page = await open(browser, server.url);
  await listen(page, '/feed', ['hello']);
  await until(page, () => seen.filter((it) => it.name === 'message').length === 6);
  const all = await seen(page);
  assert.deepEqual(all.filter((it) => it.name === 'message').map((it) => it.data), [1, 2, 3, 4, 5, 6].map((i) => `event ${i}`));
  assert.deepEqual(all.filter((it) => it.name === 'hello').map((it) => it.data), ['hello, you have seen 0', 'hello, you have seen 3']);
  assert.equal(all[0], 'open');
  assert.equal(all.filter((it) => it === 'open').length, 2);
  assert.equal(all.filter((it) => it === 'again').length, 1);
  await page.context().close();
  await untilAsked('/reasons?feed', 'error client');
});

test('data come byte for byte, under their names, and comments are not seen', { timeout }, async () => {
  const page = await open(browser, server.url);
  await listen(page, '/texts', ['named']);
  await until(page, () => seen.some((it) => it.data === 'last'));
  assert.deepEqual(await seen(page), [
    'open',
    { name: 'message', data: 'one\ntwo\nthree\nfour', id: '' },
    { name: 'message', data: '', id: '' },
    { name: 'message', data: ' a space in front, äöü 漢字 🦜', id: '' },
    { name: 'named', data: 'data: no field', id: '' },
    { name: 'message', data: 'last', id: '' },
  ]);
  await page.context().close();
});

test('204 tells a page to come no more, and so does 503', { timeout }, async () => {
  const page = await open(browser, server.url);
  await listen(page, '/once');
  await until(page, () => seen.includes('over'));
  assert.deepEqual(await seen(page), ['open', 'again', 'over']);
  assert.equal(await ask('/visits?once'), '?once=2');
  // The reason for which a full queue answers 200 to those who accept events.
  await listen(page, '/failing');
  await until(page, () => seen.includes('over'));
  assert.equal(await ask('/visits?failing'), '?failing=1');
  await page.context().close();
});

test('five hundred promised tokens come in their order', { timeout }, async () => {
  const page = await open(browser, server.url);
  await listen(page, '/tokens', ['token']);
  await until(page, () => seen.some((it) => it.data === 't500'));
  const tokens = (await seen(page)).filter((it) => it.name === 'token').map((it) => it.data);
  assert.deepEqual(tokens.slice(0, 500), Array.from({ length: 500 }, (_, i) => `t${i + 1}`));
  await page.context().close();
});

test('a tab that is closed is told of', { timeout }, async () => {
  const page = await open(browser, server.url);
  await listen(page, '/left');
  await until(page, () => seen.includes('open'));
  await page.context().close();
  await untilAsked('/reasons?left', 'client');
});

test('a page comes back by itself when the server was stopped and started again', { timeout }, async () => {
  const page = await open(browser, server.url);
  await listen(page, '/left');
  await until(page, () => seen.includes('open'));
  await ask('/restart');
  await until(page, () => seen.filter((it) => it === 'open').length === 2);
  assert.deepEqual((await seen(page)).filter((it) => it === 'over'), []);
  assert.match(await ask('/reasons?left'), / stop$/);
  await page.context().close();
});
