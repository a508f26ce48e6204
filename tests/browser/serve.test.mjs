// The three ways to Shiny on rookery, each in a real browser: the command, rookery::serve(), and shiny::runApp() with
// use_compat().

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, open, shinyIdle, useBrowser } from './support/browser.mjs';
import { Server, library, patience } from './support/server.mjs';

const timeout = 4 * patience;

useBrowser();

/** Opens the Shiny example, and has R answer a change of its input over the WebSocket. */
async function use(url) {
  const page = await open(browser, url);
  await shinyIdle(page);
  await page.evaluate(() => window.Shiny.setInputValue('bins', 7));
  await page.waitForFunction(
    () => document.querySelector('#summary')?.textContent.startsWith('272 eruptions in 7 bins of '),
  );
  return page;
}

/** The status that the page's WebSocket was closed with. */
const closeCode = (page) => page.evaluate(() => new Promise((done) => {
  window.Shiny.shinyapp.$socket.addEventListener('close', (event) => done(event.code));
}));

const skip = library ? false : "with Debian's httpuv there is no rookery";

test('rookery serve examples/shiny', { timeout, skip }, async () => {
  const server = Server.command(['serve', 'examples/shiny', '--port', '0']);
  const url = (await server.line(/^Serving on (http:\S+)/))[1];
  assert.match(server.output, /: Shiny app \(app\.R\) in /);
  const page = await use(url);
  await server.line(/"GET \/websocket\/(\?w=\S+)? HTTP\/1\.1" 101 /);
  await server.line(/"GET \/ HTTP\/1\.1" 200 /);
  const closed = closeCode(page);
  // The page listens by then: it does one thing after the other.
  await page.evaluate(() => true);
  const end = await server.signal('SIGTERM');
  assert.deepEqual(end, { code: 0, signal: null }, server.output);
  assert.equal(await closed, 1001);
});

test('rookery::serve("examples/shiny")', { timeout, skip }, async () => {
  const server = new Server(['-e', 'rookery::serve("examples/shiny", port = 0); cat("after\\n")']);
  const url = (await server.line(/^Serving on (http:\S+)/))[1];
  await use(url);
  assert.deepEqual(await server.signal('SIGINT'), { code: 0, signal: null }, server.output);
  assert.match(server.output, /^after$/m);
});

test('shiny::runApp() with use_compat()', { timeout, skip }, async () => {
  // The tests' R has rookery's httpuv in front: first it is taken away again, as in a session that knows nothing of it.
  const code = [
    'compat <- system.file("compat", package = "rookery")',
    'Sys.setenv(R_LIBS = dirname(dirname(compat)))',
    'assign(".lib.loc", setdiff(.libPaths(), normalizePath(compat)), environment(.libPaths))',
    'before <- rookery::which_httpuv()',
    'rookery::use_compat()',
    'cat("before:", before$kind, before$loaded, "\\n")',
    'library(shiny)',
    'print(rookery::which_httpuv())',
    'runApp("examples/shiny", port = 0, launch.browser = FALSE)',
  ].join('; ').replace('port = 0', `port = ${20000 + process.pid % 20000}`);
  const server = new Server(['-e', code]);
  const url = await server.listening();
  assert.match(server.output, /^before: (httpuv|none) FALSE/m);
  assert.match(server.output, /put this line into \.Rprofile: rookery::use_compat\(quiet = TRUE\)/);
  assert.match(server.output, /^This session uses rookery's httpuv /m);
  await use(url);
});
