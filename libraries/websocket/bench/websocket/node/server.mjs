// An echo server with ws: `server.mjs plain|deflate`. Prints its port.
import { WebSocketServer } from "ws";

const perMessageDeflate = process.argv[2] === "deflate" && {
  serverNoContextTakeover: true,
  clientNoContextTakeover: true,
  threshold: 512,
};
const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate }, () => {
  console.log(server.address().port);
});
server.on("connection", (socket) => {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
});
