// The vignette In production (r/vignettes/production.Rmd): each of its commands runs, each of its metrics exists, and its
// pictures are made here. With ROOKERY_PICTURES=folder, they are written there as live, phone and others, and those two are
// the vignette's production-*.png.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createListener } from 'node:net';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import { closeAll, launch } from '../support/browser.mjs';
import { temporaryFolder } from '../support/folder.mjs';
import { Load } from '../support/load.mjs';
import { Server, library, patience, root } from '../support/server.mjs';

const timeout = 6 * patience;
const skip = library ? false : "with Debian's httpuv there is no rookery";
const program = resolve(root, library, 'rookery/exec/rookery');
const vignette = readFileSync(resolve(root, 'r/vignettes/production.Rmd'), 'utf8');
const run = promisify(execFile);
const pictures = process.env.ROOKERY_PICTURES;
// The charts of the pictures have a minute to show.
const seconds = pictures ? 60 : 8;
const ports = {};
let folder;
let app;
let browser;

/** The blocks of code in one language. */
const blocks = (language) => [...vignette.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)]
  .filter((block) => block[1] === language).map((block) => block[2]);
const commands = blocks('sh').flatMap((block) => block.trim().split('\n'));

/** A command of the vignette as it runs here: with the test's app, ports and files. */
const here = (command) => command
  .replaceAll('9100', String(ports.admin)).replaceAll('4318', String(ports.collector))
  .replace(/^(.*)rookery serve app\//, `$1rookery serve app/ --port 0`)
  .replace(/\bapp\//, app).replace('access.json', join(folder, 'access.json'));

/** Starts a command that serves, with the variables in front of it. */
function served(command) {
  const words = here(command).split(' ');
  const start = words.indexOf('rookery');
  const env = Object.fromEntries(words.slice(0, start).map((word) => word.split(/=(.*)/).slice(0, 2)));
  return new Server(words.slice(start + 1), env, undefined, [program]);
}

async function freePort() {
  const listener = createListener().listen(0, '127.0.0.1');
  await new Promise((done) => { listener.on('listening', done); });
  const { port } = listener.address();
  await new Promise((done) => { listener.close(done); });
  return port;
}

async function get(url) {
  const response = await fetch(url);
  assert.equal(response.status, 200, url);
  return response.text();
}

before(async () => {
  folder = temporaryFolder();
  app = join(folder, 'shop');
  cpSync(resolve(root, 'tests/browser/apps/production'), app, { recursive: true });
  ports.admin = await freePort();
  browser = await launch();
}, { timeout });

after(async () => {
  await closeAll();
  await Server.stopAll();
});

test('the commands, metrics and pictures of the vignette', { timeout, skip }, async () => {
  const [serve] = commands.filter((command) => command.startsWith('rookery serve'));
  const server = served(serve);
  server.url = (await server.line(/^Serving on (http:\S+)/))[1];
  server.page = await server.livePage();
  await server.line(/worker 1 .*ready|\[1 \d+\].*ready|is ready/, 2);

  // Load on several routes, some errors, and a report that takes long.
  const loads = ['/plots/7', '/users/3', '/'].map((path) => new Load(server.url + path, 2));
  for (let i = 0; i < 3; i += 1) await fetch(`${server.url}/orders/${i}`);
  const context = async (options) => {
    const page = await (await browser.newContext(options)).newPage();
    page.setDefaultTimeout(patience);
    await page.goto(server.page);
    await page.locator('#connection.on').waitFor();
    await page.waitForFunction(() => document.querySelectorAll('canvas').length >= 2);
    return page;
  };
  const wide = { viewport: { width: 1200, height: 900 }, deviceScaleFactor: 1 };
  const phone = { viewport: { width: 375, height: 780 }, deviceScaleFactor: 1 };
  const pages = {};
  for (const [name, options] of [['live', wide], ['phone', { ...phone, colorScheme: 'dark' }], ['live-dark', { ...wide, colorScheme: 'dark' }], ['phone-light', phone]]) {
    pages[name] = await context(options);
  }
  // Once the pages are open, which takes long on a busy machine.
  const report = fetch(`${server.url}/report/${seconds + 10}`);
  await pages.live.waitForFunction(() => [...document.querySelectorAll('.doing .what')].some((node) => /GET \/report/.test(node.textContent)));
  await pages.live.waitForFunction(() => ['/users', '/plots', '/report'].every((route) => document.body.textContent.includes(route)));
  if (pictures) await new Promise((done) => { setTimeout(done, seconds * 1000); });
  for (const [name, page] of Object.entries(pages)) {
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), name);
    if (pictures) {
      mkdirSync(pictures, { recursive: true });
      await page.screenshot({ path: join(pictures, `production-${name}.png`), fullPage: name.startsWith('live') });
    }
    await page.context().close();
  }
  assert.equal((await report).status, 200);
  for (const load of loads) await load.end();
  // Which functions R is in differs from run to run. Under many of them, `handler` is not named any more.
  const [, told] = await server.line(/(the R process of worker \d .*\/report.*; r=").+ < (?:compute|handler), app\.R#\d+"$/);
  const numbers = (text) => text.replace(/\d+/g, '1');
  assert.ok(blocks('').some((block) => numbers(block).includes(numbers(told))), `the vignette shows another message than ${told}`);

  for (const command of commands.filter((one) => /^(curl|rookery status)/.test(one))) {
    if (command.includes('--watch')) {
      const watching = new Server(here(command).split(' ').slice(1), {}, undefined, [program]);
      await watching.line(/requests and messages per second/, 2);
      assert.match(watching.output, /\/users/);
    } else {
      const [name, ...args] = here(command).split(' ');
      const { stdout } = await run(name === 'rookery' ? program : name, args);
      assert.match(stdout, /ready|rookery_requests_total/, command);
    }
  }

  // A metric that does not exist raises no alert.
  const metrics = await get(`http://127.0.0.1:${ports.admin}/metrics`);
  const names = new Set(blocks('yaml').join('\n').match(/\brookery_\w+/g));
  assert.ok(names.size >= 8);
  for (const name of names) assert.match(metrics, new RegExp(`^(# TYPE )?${name}\\b`, 'm'), name);

  const code = blocks('r').join('\n').replace('access.json', join(folder, 'access.json'));
  const hasJson = (await run('Rscript', ['-e', 'cat(requireNamespace("jsonlite", quietly = TRUE))'])).stdout === 'TRUE';
  if (hasJson) {
    const { stdout } = await run('Rscript', ['-e', code]);
    assert.match(stdout, /\/report\/\d+ +200/, 'the slowest request comes first');
  }
  await server.stop();
});

test('the command of the vignette that exports traces', { timeout, skip }, async () => {
  let batches = 0;
  const collector = createServer((request, response) => {
    request.resume().on('end', () => { batches += 1; response.end(); });
  }).listen(0, '127.0.0.1');
  await new Promise((done) => { collector.on('listening', done); });
  ports.collector = collector.address().port;
  try {
    const [serve] = commands.filter((command) => command.startsWith('OTEL_'));
    const server = served(serve);
    const url = (await server.line(/^Serving on (http:\S+)/))[1];
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    assert.equal((await fetch(url, { headers: { traceparent } })).status, 200);
    await server.stop();
    assert.ok(batches > 0, 'spans were exported');
  } finally {
    collector.close();
  }
});

test('every command of the vignette is run by a test', { skip }, () => {
  // `rookery new` and `rookery profile` have tests of their own.
  const known = /^(rookery (new|serve|status|profile) |curl |OTEL_\w+=)/;
  for (const command of commands) assert.match(command, known);
  for (const picture of vignette.matchAll(/\]\((production-\w+\.png)\)/g)) {
    assert.ok(existsSync(resolve(root, 'r/vignettes', picture[1])), picture[1]);
  }
});
