import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A new folder, which goes when the file of tests has ended. */
export function temporaryFolder() {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-browser-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
