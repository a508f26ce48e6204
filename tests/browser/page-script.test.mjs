// Our script in Shiny's pages (r/inst/shiny/rookery-shiny.js) by itself, with what it touches of a browser made up.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { test } from 'node:test';
import vm from 'node:vm';

import { root } from './support/server.mjs';

const source = readFileSync(resolve(root, 'r/inst/shiny/rookery-shiny.js'), 'utf8');

/** A page with the script in it. */
function page({ dataset = {}, href = 'https://example.org/', Shiny = { shinyapp: { $allowReconnect: false } } } = {}) {
  const listeners = {};
  const sockets = [];
  class WebSocket extends EventTarget {
    constructor(url) {
      super();
      this.url = url;
      sockets.push(this);
    }

    end(wasClean, code) {
      this.dispatchEvent(Object.assign(new Event('close'), { wasClean, code }));
      return this.allowReconnect;
    }
  }
  const window = { Shiny, location: { href }, addEventListener: () => {} };
  const document = {
    currentScript: { dataset: { reconnect: 'app', ...dataset } },
    addEventListener: (name, listener) => { listeners[name] = listener; },
    // As in development, where the script opens no dialog.
    querySelector: () => ({}),
  };
  vm.runInNewContext(source, { window, document, URL, WebSocket });
  return { window, listeners, sockets, open: () => window.Shiny.createSocket() };
}

test('a socket is opened where Shiny would open it', () => {
  for (const [href, url] of [
    ['https://example.org/', 'wss://example.org/websocket/'],
    ['http://localhost:8000/?a=b#c', 'ws://localhost:8000/websocket/'],
    ['http://[::1]:80/app', 'ws://[::1]/app/websocket/'],
    ['https://example.org/app/', 'wss://example.org/app/websocket/'],
    ['https://example.org/a%20b/d.Rmd', 'wss://example.org/a%20b/d.Rmd/websocket/'],
    ['https://example.org/\u00e9', 'wss://example.org/%C3%A9/websocket/'],
  ]) {
    const socket = page({ href }).open();
    assert.equal(socket.url, url);
    assert.equal(socket.binaryType, 'arraybuffer');
  }
});

test('the first says who has made the page, and those after it that it has ended', () => {
  const { open } = page({ dataset: { worker: '00ff' } });
  assert.deepEqual([open(), open(), open()].map(({ url }) => url.split('/').pop()), ['?w=00ff', '?w=', '?w=']);
});

test('who has closed it decides whether it may be opened again', () => {
  const { open } = page();
  assert.equal(open().allowReconnect, true);
  for (const [wasClean, code, may] of [
    [false, 1006, true], [true, 1012, true], [true, 1001, true], [true, 1013, true], [true, 4700, true], [true, 4799, true],
    [true, 1000, false], [true, 1005, false], [true, 1008, false], [true, 1009, false], [true, 4699, false],
    [true, 4800, false], [true, 4000, false],
  ]) {
    assert.equal(open().end(wasClean, code), may, `${code}`);
  }
});

test('never is never, and always is until the app forbids it', () => {
  const never = page({ dataset: { reconnect: 'never' } });
  assert.equal(never.open().allowReconnect, false);
  assert.equal(never.open().end(false, 1006), false);
  const { window: app, open } = page();
  open();
  assert.equal(app.Shiny.shinyapp.$allowReconnect, false, 'the app has not said so');
  const always = page({ dataset: { reconnect: 'always' } });
  const { shinyapp } = always.window.Shiny;
  always.open();
  assert.equal(shinyapp.$allowReconnect, true);
  // session$allowReconnect(FALSE)
  shinyapp.$allowReconnect = false;
  always.open();
  assert.equal(shinyapp.$allowReconnect, false);
  const forced = page({ dataset: { reconnect: 'always' }, Shiny: { shinyapp: { $allowReconnect: 'force' } } });
  forced.open();
  assert.equal(forced.window.Shiny.shinyapp.$allowReconnect, 'force');
});

test('a session that follows another starts without the states of its outputs', () => {
  // As Shiny from 1.10 on keeps them. Earlier ones keep none, which the other tests have.
  const $outputProgress = { outputStates: new Map([['plot', 'value']]) };
  const { open } = page({ Shiny: { shinyapp: { $outputProgress } } });
  open();
  assert.deepEqual([...$outputProgress.outputStates], [['plot', 'value']]);
  open();
  assert.equal($outputProgress.outputStates.size, 0);
  // What a later Shiny may keep instead is left alone.
  for (const other of [null, {}, { outputStates: null }, { outputStates: { plot: 'value' } }]) {
    const later = page({ Shiny: { shinyapp: { $outputProgress: other } } });
    later.open();
    assert.equal(later.open().allowReconnect, true);
  }
});

test("an app's own socket stays its own", () => {
  const own = Object.assign(new EventTarget(), { url: 'theirs' });
  const { open, sockets } = page({ Shiny: { createSocket: () => own }, dataset: { worker: '00ff' } });
  assert.equal(open(), own);
  assert.equal(own.allowReconnect, true);
  assert.equal(sockets.length, 0);
  const always = page({ Shiny: { createSocket: () => own, shinyapp: { $allowReconnect: false } }, dataset: { reconnect: 'always' } });
  always.open();
  always.window.Shiny.shinyapp.$allowReconnect = false;
  always.open();
  assert.equal(always.window.Shiny.shinyapp.$allowReconnect, false);
});

test("it waits for Shiny's client, and a page without is left alone", () => {
  const { window, listeners } = page({ Shiny: null });
  window.Shiny = {};
  listeners.DOMContentLoaded();
  assert.equal(typeof window.Shiny.createSocket, 'function');
  const none = page({ Shiny: null });
  none.listeners.DOMContentLoaded();
  assert.equal(none.window.Shiny, null);
});
