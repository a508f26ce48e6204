// Takes the pictures of the live page that the front page shows: `node site/pictures/live-page.mjs`, after `make install`.
// The app and its clients are made up; the page is the real one.

import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { closeAll, launch } from '../../tests/browser/support/browser.mjs';
import { Server } from '../../tests/browser/support/server.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const app = `
json <- function(text) list(status = 200L, headers = list("Content-Type" = "application/json"), body = text)
list(call = function(req) {
  route <- sub("[0-9]+", "<id>", req$PATH_INFO)
  req$ROUTE <- route
  switch(route,
    "/forecast" = { Sys.sleep(rexp(1, 25)); json('{"degrees": 7}') },
    "/users/<id>" = json('{"name": "Ada"}'),
    "/report" = { until <- Sys.time() + 1.2; while (Sys.time() < until) sum(rnorm(1e4)); json('{"rows": 1200}') },
    "/model" = { if (runif(1) < 0.5) stop("the model has no column 'humidity'"); json('{"score": 0.93}') },
    json('{}'))
})
`;

const folder = join(mkdtempSync(join(tmpdir(), 'live-page-')), 'weather');
mkdirSync(folder);
writeFileSync(join(folder, 'app.R'), app);
const server = Server.command(['serve', folder, '--port', '0', '--log=none', '--admin', '127.0.0.1:0', '--workers', '3']);
const url = (await server.line(/^Serving on (http:\S+)/))[1];
const live = await server.livePage();

let open = true;
const ask = (path) => new Promise((done) => {
  request(url + path, (response) => response.resume().on('end', done)).on('error', done).end();
});
/** Sends requests with random pauses whose mean is `pause` ms. */
async function client(path, pause) {
  while (open) {
    await ask(path());
    await new Promise((done) => setTimeout(done, -pause * Math.log(Math.random())));
  }
}
const id = () => `/users/${Math.ceil(Math.random() * 99)}`;
for (let i = 0; i < 6; i++) { client(id, 60); client(() => '/forecast', 250); }
client(() => '/report', 2500);
client(() => '/model', 3000);

const seconds = Number(process.env.SECONDS ?? 300);
const browser = await launch();
const pages = [];
for (const colorScheme of ['light', 'dark']) {
  const context = await browser.newContext({ colorScheme, viewport: { width: 1200, height: 730 } });
  const page = await context.newPage();
  await page.goto(live);
  pages.push([colorScheme, page]);
}
await new Promise((done) => setTimeout(done, seconds * 1000));
for (const [colorScheme, page] of pages) await page.screenshot({ path: resolve(here, `live-page-${colorScheme}.png`) });
open = false;
await closeAll();
await Server.stopAll();
