-- Shapes the request by the environment and prints what wrk measured as one line of JSON.
local headers = tonumber(os.getenv("BENCH_HEADERS") or "0")
local body = tonumber(os.getenv("BENCH_BODY_BYTES") or "0")

for i = 1, headers do
  wrk.headers[string.format("X-Header-%03d", i)] = string.format("value-%03d", i)
end
if body > 0 then
  wrk.method = "POST"
  wrk.body = string.rep("x", body)
  wrk.headers["Content-Type"] = "application/octet-stream"
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'BENCH {"requests": %d, "seconds": %.6f, "bytes": %d, "connect_errors": %d, "read_errors": %d, "write_errors": %d, '
      .. '"status_errors": %d, "timeouts": %d, "p50": %d, "p99": %d, "p999": %d}\n',
    summary.requests, summary.duration / 1e6, summary.bytes, errors.connect, errors.read, errors.write,
    errors.status, errors.timeout, latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
