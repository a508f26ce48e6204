// Pages of Shiny behind several Rs, of which some end: `rookery serve --workers`.
//
// ROOKERY_RELOADS (3) is how often the Rs behind a page are replaced, and ROOKERY_REQUESTS (10,000) how many requests are made meanwhile at
// least. `make soak` has 20 and 1,000,000.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join, resolve } from 'node:path';
import { test } from 'node:test';

import { browser, open, shinyIdle, text, useBrowser } from './support/browser.mjs';
import { temporaryFolder } from './support/folder.mjs';
import { Load, ProgramLoad, isHere } from './support/load.mjs';
import { picture } from './support/pictures.mjs';
import { Server, library, patience, root } from './support/server.mjs';

const timeout = 6 * patience;
const reloads = Number(process.env.ROOKERY_RELOADS ?? 3);
const requests = Number(process.env.ROOKERY_REQUESTS ?? 10_000);
const skip = library ? false : "with Debian's httpuv there is no rookery";
const folder = temporaryFolder();

useBrowser();

/** Serves the app with so many Rs, and waits until all of them do. */
async function serve(workers, ...options) {
  const app = 'tests/browser/apps/workers';
  const server = Server.command(['serve', app, '--port', '0', '--log=none', '--workers', String(workers), ...options]);
  server.url = (await server.line(/^Serving on (https?:\S+)/))[1];
  await server.line(/worker \d+ \(\d+\) is ready/, workers);
  return server;
}

const pidOf = async (page) => Number(await page.textContent('#pid'));

/** A page on which somebody has worked. */
async function used(url, value) {
  const page = await open(browser, url);
  await shinyIdle(page);
  await page.fill('#text', value);
  await page.evaluate(() => window.Shiny.setInputValue('number', 42));
  await text(page, '#echo', `${value} 42`);
  return page;
}

/** Waits until another R than `pid` is behind the page, and has all that is shown. */
async function movedOn(page, pid, value) {
  await page.waitForFunction((old) => {
    const now = document.querySelector('#pid')?.textContent.trim();
    return now && now !== old && window.Shiny.shinyapp.isConnected() && !document.querySelector('#shiny-disconnected-overlay');
  }, String(pid));
  await text(page, '#echo', value);
  // The notice goes by itself.
  await page.waitForFunction(() => !document.querySelector('#shiny-notification-reconnect'));
  return pidOf(page);
}

/** An upload and a download: each has to come to the R that has the session. */
async function exchangeFiles(page) {
  const pid = await pidOf(page);
  const bytes = randomBytes(200_000);
  const path = join(folder, 'upload.bin');
  writeFileSync(path, bytes);
  await page.setInputFiles('#file', path);
  await text(page, '#upload', `${bytes.length} ${createHash('md5').update(bytes).digest('hex')} ${pid}`);
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#download')]);
  const saved = join(folder, 'pid.txt');
  await download.saveAs(saved);
  assert.equal(readFileSync(saved, 'utf8').trim(), String(pid));
}

test('a page whose R is killed goes on with another, with its inputs, and so does an idle one', { timeout, skip }, async () => {
  const server = await serve(3);
  const page = await used(server.url, 'worked on');
  const idle = await page.context().newPage();
  await idle.goto(server.url);
  await shinyIdle(idle);
  const pid = await pidOf(page);
  assert.equal(await pidOf(idle), pid, 'a browser has one R');
  await page.click('#add');
  await text(page, '#count', '1');
  await exchangeFiles(page);
  const [cookie] = await page.context().cookies();
  process.kill(pid, 'SIGKILL');
  const next = await movedOn(page, pid, 'worked on 42');
  assert.equal(await page.inputValue('#text'), 'worked on');
  // The idle one was told as well; its slider has the value that its page has.
  await movedOn(idle, pid, 'first 1');
  await exchangeFiles(page);
  await exchangeFiles(idle);
  // What a WebSocket's answer sets counts for the pages that follow.
  const [after] = await page.context().cookies();
  assert.notEqual(after.value, cookie.value);
  assert.equal(after.httpOnly, true);
  await page.reload();
  await shinyIdle(page);
  assert.ok([next, await pidOf(idle)].includes(await pidOf(page)));
  assert.match(server.output, /was ended by SIGKILL/);
  await page.context().close();
  assert.equal((await server.stop()).code, 0);
});

test('a page that reconnects does not repeat the last click and the last event', { timeout, skip }, async () => {
  const server = await serve(1, '--reconnect', 'always');
  const page = await used(server.url, 'kept');
  await page.click('#add');
  await page.click('#add');
  await page.evaluate(() => window.Shiny.setInputValue('event', 1, { priority: 'event' }));
  await text(page, '#count', '102');
  const pid = await pidOf(page);
  process.kill(pid, 'SIGKILL');
  await movedOn(page, pid, 'kept 42');
  await text(page, '#count', '0');
  assert.equal(await page.locator('#rookery-disconnected').count(), 0);
  // The next ones count.
  await page.click('#add');
  await text(page, '#count', '1');
  await page.evaluate(() => window.Shiny.setInputValue('event', 1, { priority: 'event' }));
  await text(page, '#count', '101');
  await page.context().close();
  await server.stop();
});

test('a page whose session is lost has a dialog in its language that reloads it', { timeout, skip }, async () => {
  const server = await serve(1, '--reconnect', 'never');
  for (const [lang, words] of [['de-AT', 'Neu laden'], ['tlh', 'Reload']]) {
    const page = await used(server.url, 'lost');
    await page.evaluate((to) => { document.documentElement.lang = to; }, lang);
    process.kill(await pidOf(page), 'SIGKILL');
    const dialog = page.getByRole('alertdialog');
    await dialog.waitFor();
    await page.waitForFunction(() => document.activeElement?.textContent.length > 0);
    await dialog.getByRole('button', { name: words }).click();
    // The reload waits for the next R.
    await text(page, '#echo', 'first 1');
    assert.equal(await page.locator('dialog').count(), 0);
    // An app that hides the overlay has a message of its own.
    await page.addStyleTag({ content: '#shiny-disconnected-overlay { display: none !important; }' });
    process.kill(await pidOf(page), 'SIGKILL');
    await page.waitForFunction(() => document.querySelector('#shiny-disconnected-overlay'));
    await page.waitForTimeout(1000);
    assert.equal(await page.locator('dialog').count(), 0);
    await page.context().close();
  }
  await server.stop();
});

test('the vignette has a picture of the dialog', { timeout, skip }, async () => {
  const app = join(folder, 'old-faithful');
  execFileSync(resolve(root, library, 'rookery/exec/rookery'), ['new', 'shiny', app]);
  const server = Server.command(['serve', app, '--port', '0', '--log=none', '--drain', '1s']);
  const url = (await server.line(/^Serving on (https?:\S+)/))[1];
  const pid = (await server.line(/worker \d+ \((\d+)\) is ready/))[1];
  const page = await open(browser, url);
  await shinyIdle(page);
  await page.waitForFunction(() => document.querySelector('#plot img'));
  process.kill(Number(pid), 'SIGKILL');
  await page.getByRole('alertdialog').waitFor();
  await picture(page, 'lost-session', 'production-lost-session');
  await page.context().close();
  await server.stop();
});

test('who does not allow it, and whom nobody allows it, stays', { timeout, skip }, async () => {
  for (const [options, query] of [[[], '?allow=no'], [['--reconnect', 'never'], ''], [['--reconnect', 'always'], '?allow=no']]) {
    const server = await serve(2, ...options);
    const page = await used(`${server.url}/${query}`, 'a');
    const tries = page.evaluate(() => new Promise((done) => {
      const { createSocket } = window.Shiny;
      let count = 0;
      window.Shiny.createSocket = () => { count += 1; return createSocket(); };
      // Shiny's first try would come after 1.5 s.
      window.Shiny.shinyapp.$socket.addEventListener('close', () => setTimeout(() => done(count), 4000));
    }));
    process.kill(await pidOf(page), 'SIGKILL');
    assert.equal(await tries, 0, options.join(' '));
    assert.equal(await page.locator('#shiny-disconnected-overlay').count(), 1);
    await page.context().close();
    await server.stop();
  }
});

for (const [workers, ...options] of [[3], [1, '--reload']]) {
  test(`${reloads} reloads of ${workers} under load with an open page: no request fails, and it moves on when its R has drained, with its inputs`, {
    timeout: timeout + reloads * patience + requests, skip,
  }, async () => {
    // Where the certificate to develop with is kept.
    process.env.R_USER_DATA_DIR = folder;
    // Shiny registers a page's files in the R that makes it: all have to have made it, for any of them may be asked.
    // What an R has begun it may finish: ten seconds are enough for a page, and the test waits for them at each reload.
    const server = await serve(workers, '--drain', '10s', '--tls', 'dev', '--warmup', '/', ...options);
    const page = await used(server.url, 'kept');
    let pid = await pidOf(page);
    // Pages come from R, and files from its I/O thread: over HTTP/1.1, kept alive, and over HTTP/2.
    const file = await page.evaluate(() => document.querySelector('link[rel=stylesheet]').href);
    const pages = new Load(server.url);
    const loads = [pages];
    const isLong = requests > 100_000;
    if (isHere('wrk')) loads.push(new ProgramLoad('wrk', file, isLong ? 20 : 2));
    if (isHere('h2load')) loads.push(new ProgramLoad('h2load', `${server.url}/`, isLong ? 4 : 1));
    const total = () => loads.reduce((sum, load) => sum + load.answered, 0);
    const failures = () => loads.flatMap((load) => load.failures);
    try {
      for (let generation = 1; generation <= reloads; generation += 1) {
        server.tell('SIGHUP');
        await server.line(new RegExp(`reloaded: all workers are of generation ${generation}$`));
        pid = await movedOn(page, pid, 'kept 42');
      }
      await exchangeFiles(page);
      // Without wrk a million would take hours.
      while (loads.length > 1 && total() < requests && failures().length === 0) await new Promise((done) => { setTimeout(done, 100); });
    } finally {
      await Promise.all(loads.map((load) => load.end()));
    }
    assert.deepEqual(failures(), []);
    console.log(`${reloads} reloads, ${loads.map((load) => load.answered).join(' + ')} requests, none of which failed`);
    assert.ok(total() > 100, `${total()} requests`);
    await page.context().close();
    assert.equal((await server.stop()).code, 0);
  });
}

test('an R that is replaced because of its age takes its pages along', { timeout, skip }, async () => {
  const server = await serve(2, '--max-age', '6s', '--drain', '1s');
  const page = await used(server.url, 'old');
  let pid = await pidOf(page);
  for (let times = 0; times < 2; times += 1) pid = await movedOn(page, pid, 'old 42');
  assert.match(server.output, /is replaced: it is \d+ s old/);
  await page.context().close();
  await server.stop();
});

test('two browsers, two pages each: everybody has his own R', { timeout, skip }, async () => {
  const server = await serve(2);
  const pages = [];
  for (let each = 0; each < 2; each += 1) {
    const first = await used(server.url, `browser ${each}`);
    const second = await first.context().newPage();
    await second.goto(server.url);
    await shinyIdle(second);
    pages.push(first, second);
  }
  const pids = await Promise.all(pages.map(pidOf));
  assert.equal(pids[0], pids[1]);
  assert.equal(pids[2], pids[3]);
  assert.notEqual(pids[0], pids[2]);
  for (const page of pages) await exchangeFiles(page);
  await Promise.all([pages[0], pages[2]].map((page) => page.context().close()));
  await server.stop();
});

test("in another site's page there is no cookie, and each page has its R all the same", { timeout, skip }, async () => {
  // Shiny registers a page's files in the R that makes it: without a cookie they may be asked of any, so all have to have made it.
  const server = await serve(3, '--warmup', '/');
  // 127.0.0.1 and localhost are two sites to a browser.
  const around = createServer((request, response) => {
    response.writeHead(200, { 'Content-Type': 'text/html' });
    response.end(`<iframe src="${server.url}" width="900" height="900"></iframe>`);
  });
  await new Promise((done) => { around.listen(0, '127.0.0.1', done); });
  const page = await open(browser, `http://localhost:${around.address().port}/`);
  for (let times = 0; times < 5; times += 1) {
    const frame = page.frameLocator('iframe');
    await frame.locator('#pid:not(:empty)').waitFor();
    const [made, pid] = [await frame.locator('#made-by').textContent(), await frame.locator('#pid').textContent()];
    assert.equal(made.trim(), pid.trim());
    const path = join(folder, 'in-frame.bin');
    writeFileSync(path, `${times}`);
    await frame.locator('#file').setInputFiles(path);
    await frame.locator('#upload', { hasText: ` ${pid.trim()}` }).waitFor();
    await page.reload();
  }
  assert.deepEqual(await page.context().cookies(server.url), []);
  await page.context().close();
  around.closeAllConnections();
  around.close();
  await server.stop();
});
