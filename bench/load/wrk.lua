-- Builds the request from environment variables, and prints wrk's results as one line of JSON.
local headers = tonumber(os.getenv("BENCH_HEADERS") or "0")
local body = tonumber(os.getenv("BENCH_BODY_BYTES") or "0")
local chunked = os.getenv("BENCH_CHUNKED") == "1"

for i = 1, headers do
  wrk.headers[string.format("X-Header-%03d", i)] = string.format("value-%03d", i)
end
if body > 0 then
  wrk.method = "POST"
  wrk.body = string.rep("x", body)
  wrk.headers["Content-Type"] = "application/octet-stream"
end
for name, value in string.gmatch(os.getenv("BENCH_SEND") or "", "([^:\n]+): ([^\n]*)") do
  wrk.headers[name] = value
end
local method = os.getenv("BENCH_METHOD") or ""
if method ~= "" then
  wrk.method = method
end

-- wrk always adds Content-Length to a request with a body. A chunked request is therefore built here,
-- once, in chunks of 8 KiB.
if chunked then
  local whole
  function request()
    if whole == nil then
      local chunks = {}
      for at = 1, body, 8192 do
        local chunk = wrk.body:sub(at, at + 8191)
        chunks[#chunks + 1] = string.format("%x\r\n%s\r\n", #chunk, chunk)
      end
      local payload = wrk.body
      wrk.body = nil
      wrk.headers["Transfer-Encoding"] = "chunked"
      whole = wrk.format() .. table.concat(chunks) .. "0\r\n\r\n"
      wrk.body = payload
    end
    return whole
  end
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'BENCH {"requests": %d, "seconds": %.6f, "bytes": %d, "connect_errors": %d, "read_errors": %d, "write_errors": %d, '
      .. '"status_errors": %d, "timeouts": %d, "p50": %d, "p99": %d, "p999": %d}\n',
    summary.requests, summary.duration / 1e6, summary.bytes, errors.connect, errors.read, errors.write,
    errors.status, errors.timeout, latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
