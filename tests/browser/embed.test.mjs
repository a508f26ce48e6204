// An app in a frame of another site's page, behind several Rs (`rookery serve --workers 2 --embed`, over HTTPS): by which of them each of
// its requests was answered, and that it works.
//
// To a browser 127.0.0.1 and localhost are two sites.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';

import { closeAll, launchPersistent } from './support/browser.mjs';
import { temporaryFolder } from './support/folder.mjs';
import { Server, library, patience, root } from './support/server.mjs';

const timeout = 6 * patience;
const skip = library ? false : "with Debian's httpuv there is no rookery";
const folder = temporaryFolder();
let around;
let server;
/** The cookies with which `/plain` was asked for. */
const plain = [];

before(async () => {
  if (skip) return;
  // Where the certificate to develop with is kept.
  process.env.R_USER_DATA_DIR = folder;
  // Shiny registers a page's files in the R that makes it: without a cookie they may be asked of any, so all have to have made it.
  server = Server.command([
    'serve', 'tests/browser/apps/workers', '--port', '0', '--workers', '2', '--embed', '--tls', 'dev', '--warmup', '/',
  ]);
  server.url = (await server.line(/^Serving on (https:\S+)/))[1];
  await server.line(/worker \d+ \(\d+\) is ready/, 2);
  const tls = resolve(root, 'crates/test-support/tls');
  const cert = readFileSync(join(tls, 'certificates/localhost.pem'));
  const key = readFileSync(join(tls, 'keys/localhost.key'));
  around = createServer({ cert, key }, (request, response) => {
    const isPlain = request.url === '/plain';
    if (isPlain) plain.push(request.headers.cookie ?? '');
    const cookie = isPlain ? { 'Set-Cookie': 'plain=here; Path=/plain; Secure; SameSite=None' } : {};
    response.writeHead(200, { 'Content-Type': 'text/html', ...cookie });
    const inside = request.url === '/control' ? `https://127.0.0.1:${around.address().port}/plain` : server.url;
    const frame = `<iframe src="${inside}" width="900" height="900"></iframe>`;
    response.end(`<!DOCTYPE html><title>another site</title>${isPlain ? 'plain' : frame}`);
  });
  await new Promise((done) => { around.listen(0, '127.0.0.1', done); });
}, { timeout });

after(async () => {
  await closeAll();
  around?.closeAllConnections();
  around?.close();
  await Server.stopAll();
});

/** What the log says of requests that a worker had: `{ path, status, pid, session }`, the session empty where no cookie of ours went along. */
const logged = () => server.matching(/"[A-Z]+ (\S+) HTTP\/\S+" (\d+) \S+ \S+ [0-9a-f]+ \d+ (\d+) \d+ \S+ \S+ \d+ \S+ (\S+)$/)
  .map(([, path, status, pid, session]) => ({ path, status, pid, session: session === '-' ? '' : session }));

/** Works with the app in its frame on the page: outputs follow inputs, a file goes there, and one comes back. The R that has it. */
async function work(page, value) {
  const frame = page.frameLocator('iframe');
  const shows = (selector, expected) => frame.locator(selector).filter({ hasText: expected }).waitFor();
  await frame.locator('#pid:not(:empty)').waitFor();
  const pid = (await frame.locator('#pid').textContent()).trim();
  assert.equal((await frame.locator('#made-by').textContent()).trim(), pid, 'the page and its session are of one R');
  await frame.locator('#text').fill(value);
  await shows('#echo', `${value} 1`);
  await frame.locator('#add').click();
  await shows('#count', '1');
  const path = join(folder, `${value}.txt`);
  writeFileSync(path, value);
  await frame.locator('#file').setInputFiles(path);
  await shows('#upload', ` ${pid}`);
  const [download] = await Promise.all([page.waitForEvent('download'), frame.locator('#download').click()]);
  const saved = join(folder, `${value}.pid`);
  await download.saveAs(saved);
  assert.equal(readFileSync(saved, 'utf8').trim(), pid);
  return pid;
}

/** Opens the page of the other site, works, and leaves: the requests of the app in it, and the R that had its session. */
async function visit(page, value) {
  const before = logged().length;
  await page.goto(`https://localhost:${around.address().port}/`);
  const pid = await work(page, value);
  await page.goto('about:blank');
  // A request has its line once its connection has done with it. The WebSocket's comes when it has ended, and a download's may come after it.
  const since = () => logged().slice(before);
  // The log masks the token of a session.
  const expected = [/^\/$/, /^\/session\/<\.\.\.>\/upload\//, /^\/session\/<\.\.\.>\/download\//, /^\/websocket\//];
  const missing = () => expected.filter((what) => !since().some(({ path }) => what.test(path)));
  const end = Date.now() + patience;
  while (missing().length > 0) {
    assert.ok(Date.now() < end, `${missing().join(', ')} is not logged in\n${server.output}`);
    await new Promise((done) => { setTimeout(done, 20); });
  }
  const requests = since();
  // Debian's Shiny has a link to nowhere in place of that script.
  const bad = requests.filter(({ path, status }) => !/^(101|200|304)$/.test(status) && !/^\/(strftime-.*\.js|favicon\.ico)$/.test(path));
  assert.deepEqual(bad, []);
  return { pid, requests };
}

/** Visits in one browser: the cookie goes with all that the frame asks for, and all of it is one R's, whenever it comes back. */
async function expectCookie(page) {
  const first = await visit(page, 'first');
  const sessions = new Set();
  for (const [at, { pid, requests }] of [first, await visit(page, 'second'), await visit(page, 'third')].entries()) {
    assert.equal(pid, first.pid);
    assert.deepEqual(requests.filter((one) => one.pid !== pid), []);
    // None is there before the first page; and what is saved is asked for as if it were in a window of its own, where there is none either.
    const itself = ({ path }) => (at > 0 || path !== '/') && !path.includes('/download/');
    requests.filter(itself).forEach(({ session }) => sessions.add(session));
  }
  assert.equal(sessions.size, 1);
  assert.notEqual([...sessions][0], '');
}

/** The cookies that come back of another site's page in a frame, where they are not partitioned. */
async function plainCookies(page) {
  plain.length = 0;
  for (let times = 0; times < 2; times += 1) {
    await page.goto(`https://localhost:${around.address().port}/control`);
    await page.frameLocator('iframe').getByText('plain').waitFor();
  }
  return plain.at(-1);
}

test('its cookie is sent from there, and all that it asks for goes to one R', { timeout, skip }, async () => {
  const context = await launchPersistent(join(folder, 'all'), { profile: { cookie_controls_mode: 0 } });
  const page = await context.newPage();
  assert.equal(await plainCookies(page), 'plain=here');
  await expectCookie(page);
  const [{ name, sameSite, secure, httpOnly, partitionKey }] = await context.cookies(server.url);
  assert.match(name, /^__Host-rookery-[0-9a-f]{8}$/);
  assert.deepEqual({ sameSite, secure, httpOnly }, { sameSite: 'None', secure: true, httpOnly: true });
  assert.equal(partitionKey, 'https://localhost');
  await context.close();
});

test("also where a browser sends no cookies to other sites: it is this site's in that one", { timeout, skip }, async () => {
  const context = await launchPersistent(join(folder, 'own'), { profile: { cookie_controls_mode: 1 } });
  const page = await context.newPage();
  assert.equal(await plainCookies(page), '');
  await expectCookie(page);
  await context.close();
});

test('where no cookie is allowed at all, a page and its session still are of one R', { timeout, skip }, async () => {
  const context = await launchPersistent(join(folder, 'no-cookies'), { profile: { default_content_setting_values: { cookies: 2 } } });
  const page = await context.newPage();
  for (const value of ['first', 'second', 'third', 'fourth']) {
    const { pid, requests } = await visit(page, value);
    // That of the page is of the cookie which it is answered with.
    assert.deepEqual(requests.filter(({ path, session }) => path !== '/' && session !== ''), []);
    const its = requests.filter(({ path }) => /^\/(session|websocket)\//.test(path));
    assert.deepEqual(its.filter((one) => one.pid !== pid), []);
  }
  assert.deepEqual(await context.cookies(), []);
  await context.close();
});
