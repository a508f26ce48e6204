// ws as a peer: `peer.mjs server plain|deflate` or `peer.mjs client URL plain|deflate CONNECTIONS BYTES`.
import { once } from "node:events";
import { WebSocket, WebSocketServer } from "ws";

const [role, ...rest] = process.argv.slice(2);
if (role === "server") {
  const server = new WebSocketServer({
    host: "127.0.0.1",
    port: 0,
    maxPayload: 65 << 20,
    perMessageDeflate: rest[0] === "deflate" && { threshold: 0 },
  });
  server.on("listening", () => console.log(`listening on ws://127.0.0.1:${server.address().port}`));
  server.on("connection", (socket) => {
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  });
} else {
  const [url, mode, connections, size] = rest;
  const open = async () => {
    const socket = new WebSocket(url, { perMessageDeflate: mode === "deflate", maxPayload: 65 << 20 });
    await once(socket, "open");
    if (socket.extensions.includes("permessage-deflate") !== (mode === "deflate")) throw new Error("not agreed");
    return socket;
  };
  const echo = async (socket, message) => {
    const reply = once(socket, "message");
    socket.send(message);
    const [data, isBinary] = await reply;
    if (isBinary === (typeof message === "string")) throw new Error("not the kind that was sent");
    if (!Buffer.from(message).equals(data)) throw new Error("not what was sent");
  };
  const close = async (socket, code) => {
    const closed = once(socket, "close");
    socket.close(code, "done");
    const [got] = await closed;
    if (got !== code) throw new Error(`closed with ${got}`);
  };
  const socket = await open();
  for (const n of [0, 1, 125, 126, 127, 65535, 65536, 1 << 20, Number(size)]) {
    await echo(socket, "quick brown fox ".repeat(n / 16 + 1).slice(0, n));
    await echo(socket, Buffer.from(Uint8Array.from({ length: Math.min(n, 1 << 20) }, (_, i) => (i * i) >> 3)));
  }
  await close(socket, 1000);
  const many = [];
  for (let n = 0; n < Number(connections); n++) many.push(await open());
  for (let n = 0; n < 3; n++) await Promise.all(many.map((each) => echo(each, Buffer.alloc(700, n))));
  await Promise.all(many.map((each) => close(each, 1001)));
  console.log("ok");
}
