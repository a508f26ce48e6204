# A page with a WebSocket that echoes each message. Stop the server with Ctrl-C or Esc.
library(httpuv)

page <- '<!DOCTYPE html>
<meta charset="utf-8">
<title>Echo</title>
<form><input autofocus placeholder="Say something"></form>
<pre></pre>
<script>
const socket = new WebSocket(`ws://${location.host}/`);
const say = text => document.querySelector("pre").append(text + "\\n");
socket.onmessage = event => say("R: " + event.data);
socket.onclose = () => say("(closed)");
document.querySelector("form").onsubmit = event => {
  event.preventDefault();
  const input = document.querySelector("input");
  socket.send(input.value);
  input.value = "";
};
</script>'

app <- list(
  call = function(req) {
    list(status = 200L, headers = list("Content-Type" = "text/html; charset=UTF-8"), body = page)
  },
  onWSOpen = function(ws) {
    ws$onMessage(function(binary, message) ws$send(message))
  }
)

message("http://127.0.0.1:9454/")
runServer("127.0.0.1", 9454, app)
