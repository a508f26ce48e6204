// The pictures in the vignettes, which tests take. WRITE=1 writes them; otherwise a test compares a picture with the file in size only,
// because fonts and versions of Chromium differ. With ROOKERY_PICTURES=folder, all pictures are written there, light and dark.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { root } from './server.mjs';

const size = { width: 900, height: 560 };

/** The vignettes are a part of the R package, whose size CRAN limits. */
const maximum = 60_000;

/** The width and height of a PNG (the first chunk, IHDR). */
const dimensions = (png) => ({ width: png.readUInt32BE(16), height: png.readUInt32BE(20) });

/** Takes a picture of the page, which is r/vignettes/<inVignette>.png if this name is given. */
export async function picture(page, name, inVignette) {
  const before = page.viewportSize();
  await page.setViewportSize(size);
  const taken = {};
  for (const colorScheme of ['dark', 'light']) {
    await page.emulateMedia({ colorScheme });
    taken[colorScheme] = await page.screenshot({ animations: 'disabled' });
  }
  await page.setViewportSize(before);
  const where = process.env.ROOKERY_PICTURES;
  if (where) {
    mkdirSync(where, { recursive: true });
    for (const [scheme, png] of Object.entries(taken)) writeFileSync(join(where, `${name}-${scheme}.png`), png);
  }
  if (!inVignette) return;
  const file = join(root, 'r/vignettes', `${inVignette}.png`);
  assert.ok(taken.light.length < maximum, `${name} has ${taken.light.length} bytes`);
  if (process.env.WRITE) writeFileSync(file, taken.light);
  const written = readFileSync(file);
  assert.deepEqual(dimensions(written), dimensions(taken.light), `${file}: write it with WRITE=1`);
  assert.ok(written.length < maximum, `${file} has ${written.length} bytes`);
}
