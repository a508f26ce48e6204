// A client of Shiny that is no browser, so that there can be a thousand of them: a page, its WebSocket, and requests for what is its session's.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { request } from 'node:http';

import { patience } from './server.mjs';

/** One frame with this text, as clients send it: masked. */
function frame(opcode, text) {
  const payload = Buffer.from(text);
  const mask = randomBytes(4);
  assert.ok(payload.length < 126, 'long frames are not needed here');
  payload.forEach((byte, at) => { payload[at] = byte ^ mask[at % 4]; });
  return Buffer.concat([Buffer.from([0x80 | opcode, 0x80 | payload.length]), mask, payload]);
}

/** The frames at the front of `bytes`, and what is behind them. */
function frames(bytes) {
  const found = [];
  for (;;) {
    if (bytes.length < 2) return [found, bytes];
    let [at, length] = [2, bytes[1]];
    if (length === 126) [at, length] = [4, bytes.length < 4 ? Infinity : bytes.readUInt16BE(2)];
    else if (length === 127) [at, length] = [10, bytes.length < 10 ? Infinity : Number(bytes.readBigUInt64BE(2))];
    if (bytes.length < at + length) return [found, bytes];
    found.push({ opcode: bytes[0] & 15, payload: bytes.subarray(at, at + length) });
    bytes = bytes.subarray(at + length);
  }
}

/** The reply to a GET: `{ status, cookie, body }`. */
export function get(url, { agent, cookie, accept = '*/*' } = {}) {
  return new Promise((done, failed) => {
    const headers = { Accept: accept, ...(cookie ? { Cookie: cookie } : {}) };
    request(url, { agent, headers, timeout: patience }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (text) => { body += text; }).on('error', failed).on('end', () => {
        done({ status: response.statusCode, cookie: response.headers['set-cookie']?.[0].split(';')[0], body });
      });
    }).on('error', failed).on('timeout', function expire() { this.destroy(new Error(`no answer: ${url}`)); }).end();
  });
}

export class ShinyClient {
  /** The code with which its WebSocket was closed; 1006 where there was none. */
  closed = null;

  /** Opens a page and its session. */
  static async open(base, agent) {
    const page = await get(`${base}/`, { agent, accept: 'text/html' });
    assert.equal(page.status, 200);
    const client = new ShinyClient();
    Object.assign(client, { base, agent, cookie: page.cookie });
    client.pid = page.body.match(/id="made-by">(\d+)</)[1];
    client.worker = page.body.match(/data-worker="([0-9a-f]{32})"/)[1];
    await client.#connect();
    return client;
  }

  #connect() {
    return new Promise((done, failed) => {
      const headers = {
        Connection: 'Upgrade', Upgrade: 'websocket', Cookie: this.cookie,
        'Sec-WebSocket-Version': 13, 'Sec-WebSocket-Key': randomBytes(16).toString('base64'),
      };
      request(`${this.base}/websocket/?w=${this.worker}`, { headers, timeout: patience }, (response) => {
        failed(new Error(`the handshake was answered with ${response.statusCode}`));
      }).on('error', failed).on('upgrade', (response, socket, first) => {
        this.socket = socket;
        let rest = first;
        const read = (bytes) => {
          let all;
          [all, rest] = frames(Buffer.concat([rest, bytes]));
          for (const { opcode, payload } of all) this.#heard(opcode, payload, done);
        };
        socket.on('data', read).on('error', () => {}).on('close', () => {
          this.closed ??= 1006;
          failed(new Error(`closed with ${this.closed} before the session began`));
        });
        socket.write(frame(1, '{"method":"init","data":{".clientdata_url_search":"",".clientdata_output_download_hidden":false}}'));
        read(Buffer.alloc(0));
      }).end();
    });
  }

  #heard(opcode, payload, done) {
    if (opcode === 9) this.socket.write(frame(10, payload));
    if (opcode === 8) {
      this.closed = payload.length > 1 ? payload.readUInt16BE(0) : 1005;
      this.socket.end();
    }
    if (opcode === 1 && payload.includes('"config"')) {
      const { config } = JSON.parse(payload.toString());
      this.token = config.sessionId;
      assert.equal(config.workerId, this.worker, 'the page was made by another R');
    }
    // Shown, and so registered.
    if (opcode === 1 && payload.includes(`${this.token}/download/download?w=`)) done();
  }

  /** Asks for the session's download, which is the R's id, with what says whose it is: `{ status, body }`. */
  ask({ withCookie = true, withWorker = true } = {}) {
    const url = `${this.base}/session/${this.token}/download/download?w=${withWorker ? this.worker : ''}`;
    return get(url, { agent: this.agent, cookie: withCookie ? this.cookie : undefined });
  }

  close() {
    this.socket?.destroy();
  }
}
