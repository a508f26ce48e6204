// The live page at the admin address, in a real browser: with one worker, several, and R's own serve().

import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { browser, useBrowser } from '../support/browser.mjs';
import { Server, library, patience } from '../support/server.mjs';

const timeout = 4 * patience;
const skip = library ? false : "with Debian's httpuv there is no rookery";
const app = 'tests/browser/apps/live';

useBrowser();

/** Waits for the addresses of a server that has an admin address. */
async function started(server) {
  server.url = (await server.line(/^Serving on (http:\S+)/))[1];
  server.page = await server.livePage();
  return server;
}

/** Serves the app with so many workers. */
const serve = (workers, ...options) => started(Server.command(
  ['serve', app, '--port', '0', '--log=none', '--admin', '127.0.0.1:0', '--workers', String(workers), ...options],
));

/** Opens the live page. Everything that the browser complains about, such as its policy, is an error of the test. */
async function open(server, options = {}) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  page.complaints = [];
  page.on('pageerror', (error) => page.complaints.push(error.message));
  page.on('console', (message) => { if (message.type() === 'error') page.complaints.push(message.text()); });
  const own = [new URL(server.page).origin, server.url, 'data:'];
  page.on('request', (sent) => { if (!own.some((start) => sent.url().startsWith(start))) page.complaints.push(sent.url()); });
  await page.goto(server.page);
  await page.locator('#connection.on').waitFor();
  await page.locator('.card').first().waitFor();
  return page;
}

/** Sends a request of its own connection, and returns the status and the text. */
function ask(url, { method = 'GET', headers = {}, body } = {}) {
  return new Promise((done, failed) => {
    const sent = request(url, { method, headers, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (piece) => { text += piece; });
      response.on('end', () => done({ status: response.statusCode, text })).on('error', failed);
    });
    sent.on('error', failed).end(body);
  });
}

/** Waits until the text of an element matches. */
async function shows(page, selector, pattern) {
  await page.waitForFunction(
    ([where, wanted]) => new RegExp(wanted).test(document.querySelector(where)?.textContent ?? ''),
    [selector, pattern.source],
  );
}

test('the page of one worker is there while R computes, and while it waits', { timeout, skip }, async () => {
  const server = await serve(1);
  const page = await open(server);
  assert.equal(new URL(page.url()).search, '', 'the token has left the address');
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.path], [true, 'Strict', '/live/']);
  assert.equal(await page.evaluate(() => document.cookie), '');
  await shows(page, '.doing .badge', /idle/);
  for (const [path, does] of [['compute', 'computing'], ['wait', 'waiting']]) {
    const answer = ask(`${server.url}/${path}?secret=in-the-query`);
    await shows(page, '.doing .badge', new RegExp(does));
    await shows(page, '.doing .what', new RegExp(`^GET /${path}$`));
    await shows(page, '.stack', path === 'compute' ? /^in .*compute < handler, app\.R#\d+ \(/ : /^in Sys\.sleep < handler, app\.R#\d+ \(/);
    // Two snapshots later the time has gone on.
    const time = await page.locator('.doing .time').textContent();
    await page.waitForFunction((before) => document.querySelector('.doing .time').textContent !== before, time);
    assert.equal((await answer).status, 200);
    await shows(page, '.doing .badge', /idle/);
  }
  await page.reload();
  await page.locator('.card').waitFor();
  assert.deepEqual(page.complaints, []);
});

test('the page of R\'s own serve() is there while R computes', { timeout, skip }, async () => {
  const server = await started(new Server(
    ['-e', `rookery::serve(source("${app}/app.R")$value, port = 0, admin = "127.0.0.1:0")`],
  ));
  const page = await open(server);
  // No supervisor would obey the other buttons.
  assert.deepEqual(await page.locator('[data-action]:visible').allTextContents(), ['Profile']);
  const answer = ask(`${server.url}/compute`);
  await shows(page, '.doing .badge', /computing/);
  await shows(page, '.doing .what', /^GET \/compute$/);
  assert.equal((await answer).status, 200);
  assert.equal((await ask(`${server.url}/fail?name=somebody`)).status, 500);
  await shows(page, '#errors', /cannot use query/);
  assert.deepEqual(page.complaints, []);
});

test('the button takes a profile and offers its file', { timeout, skip }, async () => {
  const server = await serve(2);
  const page = await open(server, { acceptDownloads: true });
  await page.locator('[data-action="profile"]').click();
  await shows(page, '#profile', /being profiled/);
  const answers = Promise.all([1, 2].map(() => ask(`${server.url}/compute`)));
  assert.equal(await page.locator('#profile a').isHidden(), true);
  // A second profile is refused, with the reason.
  await page.waitForFunction(() => !document.querySelector('[data-action="profile"]').disabled);
  await page.keyboard.press('o');
  await shows(page, '#refusal', /another profile is running/);
  await shows(page, '#profile', /samples of R: GET:\/compute/);
  const downloading = page.waitForEvent('download');
  await page.locator('#profile a').click();
  const download = await downloading;
  assert.equal(download.suggestedFilename(), 'rookery-profile-1.out');
  const text = await readFile(await download.path(), 'utf8');
  assert.match(text, /^GC profiling: line profiling: sample\.interval=10007\n/);
  assert.match(text, /"compute" 1#\d+ .*"GET:\/compute"/);
  assert.deepEqual((await answers).map(({ status }) => status), [200, 200]);
  // The browser reports the refusal itself.
  assert.deepEqual(page.complaints.filter((text) => !text.includes('409')), []);
});

test('buttons and keys reload, add a worker and remove one', { timeout, skip }, async () => {
  const server = await serve(1);
  const page = await open(server);
  const cards = (count) => page.waitForFunction((wanted) => document.querySelectorAll('.card').length === wanted, count);
  await page.locator('[data-action="add-worker"]').click();
  await cards(2);
  await page.keyboard.press('-');
  assert.match(await page.locator('#confirm-text').textContent(), /End one worker/);
  await page.keyboard.press('Escape');
  await page.locator('#confirm').waitFor({ state: 'hidden' });
  await page.keyboard.press('-');
  await page.keyboard.press('Enter');
  await cards(1);
  const pid = await page.locator('.card .head .muted').textContent();
  await page.keyboard.press('r');
  await page.locator('#confirm-ok').click();
  await server.line(/reload/i);
  await page.waitForFunction((before) => {
    const shown = [...document.querySelectorAll('.card .head .muted')].map((node) => node.textContent);
    return shown.length === 1 && shown[0].split(' ·')[0] !== before.split(' ·')[0];
  }, pid);
  await page.keyboard.press('?');
  await page.locator('#keys').waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('p');
  await shows(page, '#connection', /paused/);
  await page.keyboard.press('p');
  await shows(page, '#connection', /live/);
  assert.deepEqual(page.complaints, []);
});

test('a refused action is shown until it is acknowledged', { timeout, skip }, async () => {
  const server = await serve(1);
  const page = await open(server);
  await page.route('**/live/actions/add-worker', (route) => route.fulfill({ status: 503 }));
  await page.locator('[data-action="add-worker"]').click();
  await shows(page, '#refusal', /was not done.*status 503/);
  // The refusal is still shown two snapshots later.
  const at = await page.evaluate('latest.clock');
  await page.waitForFunction((before) => latest.clock > before + 1.5, at);
  assert.equal(await page.locator('#refusal').isVisible(), true);
  await page.locator('#refusal-ok').click();
  assert.equal(await page.locator('#refusal').isVisible(), false);
});

test('the page says so when nothing comes from the server, and continues afterwards', { timeout, skip }, async () => {
  const server = await serve(1);
  const page = await open(server);
  const { pid } = JSON.parse((await ask(`${new URL(server.page).origin}/status`)).text);
  process.kill(pid, 'SIGSTOP');
  try {
    await shows(page, '#connection', /no connection/);
    for (const expected of ['no connection', 'no connection']) {
      await page.keyboard.press('p');
      assert.equal(await page.locator('#connection').textContent(), expected);
    }
    assert.equal(await page.locator('#connection.on').count(), 0);
  } finally {
    process.kill(pid, 'SIGCONT');
  }
  await shows(page, '#connection', /live/);
  await page.locator('#connection.on').waitFor();
});

test('the page connects again when a stream does not open, and when it is refused', { timeout, skip }, async () => {
  const server = await serve(1);
  const page = await open(server);
  // The first stream gets no response, the second one is refused, and the request for the reason
  // gets no response.
  let requests = 0;
  await page.route('**/live/events', (route) => {
    requests += 1;
    if (requests === 2) return route.fulfill({ status: 503 });
    return requests < 4 ? undefined : route.continue();
  });
  await page.reload();
  await shows(page, '#connection', /no connection/);
  await page.locator('#connection.on').waitFor();
  assert.equal(requests, 4);
});

test('charts survive a clock that is set back, and another colour scheme', { timeout, skip }, async () => {
  const server = await serve(1);
  const page = await open(server, { colorScheme: 'light' });
  await page.waitForFunction(() => history_.samples.length >= 2 && document.querySelectorAll('canvas').length >= 2);
  const added = await page.evaluate(`(() => {
    const count = history_.samples.length;
    show({ ...latest, at: latest.at - 3600, clock: latest.clock + 0.9 });
    return history_.samples.length - count;
  })()`);
  assert.equal(added, 1);
  // A clock that begins again is a new start, and the next snapshots are shown.
  await page.evaluate("show({ ...latest, clock: 5 })");
  await page.waitForFunction(() => history_.samples.length >= 2);
  await page.keyboard.press('p');
  const canvases = () => page.evaluate("document.querySelectorAll('canvas').length");
  const count = await canvases();
  for (const colorScheme of ['dark', 'light']) {
    await page.emulateMedia({ colorScheme });
    await page.waitForFunction((wanted) => matchMedia(`(prefers-color-scheme: ${wanted})`).matches, colorScheme);
    assert.equal(await canvases(), count);
  }
  assert.deepEqual(page.complaints, []);
});

test('errors appear with tracebacks and ids, and nothing that the client has sent', { timeout, skip }, async () => {
  const server = await serve(1);
  const page = await open(server);
  assert.match(await page.locator('#no-errors').textContent(), /No error/);
  const secrets = ['query-secret-1', 'cookie-secret-2', 'Y3JlZGVudGlhbHM=', 'body-secret-4'];
  const failed = await ask(`${server.url}/fail?token=${secrets[0]}`, {
    method: 'POST',
    headers: { cookie: `session=${secrets[1]}`, authorization: `Basic ${secrets[2]}` },
    body: JSON.stringify({ password: secrets[3] }),
  });
  assert.equal(failed.status, 500);
  await page.locator('#errors summary').click();
  await shows(page, '#errors', /cannot use query \?token=<\.\.\.>/);
  const text = await page.locator('#errors').textContent();
  assert.match(text, /POST \/fail/);
  assert.match(text, /quote_all\(req\)/);
  assert.match(text, /request [0-9a-f]{32}/);
  assert.match(text, /of <b>the client<\/b>/, 'it is text, not HTML');
  assert.equal(await page.locator('#errors b').count(), 0);

  // Everything that comes out, from the page to the terminal.
  const admin = new URL(server.page).origin;
  const outputs = [await page.content()];
  outputs.push(await page.evaluate(async () => {
    const { body } = await fetch('/live/events');
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let all = '';
    while (!all.includes('event: snapshot')) all += (await reader.read()).value;
    await reader.cancel();
    return all;
  }));
  for (const path of ['/status', '/status.txt', '/metrics']) outputs.push((await ask(admin + path)).text);
  const pid = JSON.parse(outputs[2]).pid;
  const watching = Server.command(['status', '--watch', String(pid)]);
  await watching.line(/cannot use query/);
  await watching.line(/requests and messages per second/, 2);
  outputs.push(watching.output);
  for (const output of outputs) {
    assert.ok(output.length > 100);
    for (const secret of secrets) assert.ok(!output.includes(secret), `${secret} in ${output}`);
  }
  assert.match(watching.output, /quote_all\(req\)/);
  assert.ok(!watching.output.includes('\x1b'), 'no colour, because it is no terminal');
  assert.deepEqual(page.complaints, []);
});

test('open streams are counted', { timeout, skip }, async () => {
  const server = await serve(1);
  const page = await open(server);
  const streams = (count) => page.waitForFunction(
    (wanted) => [...document.querySelectorAll('#summary > div')].some((tile) => tile.textContent.startsWith(`Streams${wanted} `)), count,
  );
  await streams(0);
  const sent = request(`${server.url}/stream`, { agent: false }, (response) => response.resume()).end();
  sent.on('error', () => {});
  await streams(1);
  sent.destroy();
  await streams(0);
});

test('sessions of Shiny have what is computed for them, and the charts begin with the time before', { timeout, skip }, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'rookery-sessions-'));
  const end = join(folder, 'end');
  const server = await started(Server.command(
    ['serve', 'tests/browser/apps/sessions', '--port', '0', '--log=none', '--admin', '127.0.0.1:0'],
    { ROOKERY_TEST_END: end },
  ));
  const context = await browser.newContext();
  const [first, second] = [await context.newPage(), await context.newPage()];
  for (const user of [first, second]) {
    await user.goto(server.url);
    await user.getByText('clicks: 0').waitFor();
  }
  const page = await open(server);
  await shows(page, '#sessions-about', /^0 computing · 2 idle · 0 expected/);
  const id = await first.evaluate('Shiny.shinyapp.config.sessionId');
  await first.getByRole('button', { name: 'Compute' }).click();
  await shows(page, '#sessions-about', /^1 computing · 1 idle/);
  // The session for which R computes comes first, and only the beginning of its token is shown.
  await shows(page, '#sessions tr:first-child', new RegExp(`^${id.slice(0, 8)}….*<observer:observeEvent\\(input\\$go\\)>, app.R#\\d+\\d\\.\\d s`));
  assert.ok(!(await page.content()).includes(id));
  assert.equal(await page.locator('#sessions tr').count(), 2);
  await writeFile(end, '');
  await first.getByText('clicks: 1').waitFor();
  await shows(page, '#sessions-about', /^0 computing · 2 idle/);
  assert.deepEqual(page.complaints, []);
  // A page that is opened now shows the seconds before.
  const later = await open(server);
  await later.waitForFunction(() => document.querySelectorAll('canvas').length >= 2);
  const [age, ofPage] = await later.evaluate('[latest.clock - history_.times[0], performance.now() / 1000]');
  assert.ok(age > ofPage, `the first sample is ${age} s old, and the page ${ofPage} s`);
  await shows(later, '#rate-legend', /messages of WebSockets/);
  assert.deepEqual(later.complaints, []);
  await context.close();
  await rm(folder, { recursive: true });
});

test('it fits a phone and a wide screen, in light and dark', { timeout, skip }, async () => {
  const server = await serve(2);
  const backgrounds = new Set();
  for (const width of [320, 375, 1280]) {
    for (const colorScheme of ['light', 'dark']) {
      const page = await open(server, { viewport: { width, height: 800 }, colorScheme });
      await page.waitForFunction(() => document.querySelectorAll('canvas').length >= 2);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${width} ${colorScheme}`);
      backgrounds.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
      const cut = await page.evaluate(() => [...document.querySelectorAll('button, .tiles dd, .card b')]
        .filter((node) => node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== 'inline').map((node) => node.textContent));
      assert.deepEqual(cut, [], `${width}`);
      if (process.env.ROOKERY_PICTURES) {
        await page.screenshot({ path: `${process.env.ROOKERY_PICTURES}/live-${width}-${colorScheme}.png`, fullPage: true });
      }
      assert.deepEqual(page.complaints, []);
      await page.context().close();
    }
  }
  assert.equal(backgrounds.size, 2);
});

test('without the token, from another origin or for another host, there is nothing', { timeout, skip }, async () => {
  const server = await serve(1);
  const page = await open(server);
  const { origin } = new URL(server.page);
  const [{ name, value }] = await page.context().cookies();
  const cookie = `${name}=${value}`;
  const status = async (path, options) => (await ask(origin + path, options)).status;
  assert.equal(await status('/live/'), 403);
  assert.equal(await status('/live/events'), 403);
  assert.equal(await status('/live/actions/reload', { method: 'POST', headers: { origin } }), 403);
  assert.equal(await status('/live/actions/reload', { method: 'POST', headers: { cookie } }), 403);
  assert.equal(await status('/live/actions/reload', { method: 'POST', headers: { cookie, origin: 'http://evil.example' } }), 403);
  assert.equal(await status('/live/', { headers: { cookie, host: 'evil.example' } }), 421);
  assert.equal(await status('/-/live'), 200);
  // A page of the app, at another port of the same host, may neither read nor reload.
  await page.goto(server.url);
  const tried = await page.evaluate(async (admin) => Promise.all([
    fetch(`${admin}/live/events`, { credentials: 'include' }).then(() => 'read', () => 'refused'),
    fetch(`${admin}/live/actions/reload`, { method: 'POST', credentials: 'include', mode: 'no-cors' }).then(() => 'sent', () => 'refused'),
  ]), origin);
  assert.equal(tried[0], 'refused');
  const { generation } = JSON.parse((await ask(`${origin}/status`)).text);
  assert.equal(generation, 0, 'nothing was reloaded');
});
