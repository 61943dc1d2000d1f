-- What wrk sends and checks for http_load.py: wrk -s FILE URL -- QUESTION KIND ANSWER; two files with the bodies.
-- Says in its last line, as JSON, what it met.

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

function init(args)
  wrong = 0
  expected = read(args[3])
  wrk.method = "POST"
  wrk.body = read(args[1])
  wrk.headers["Content-Type"] = args[2]
end

function response(status, headers, body)
  if status ~= 200 or body ~= expected then
    wrong = wrong + 1
  end
end

function done(summary, latency, requests)
  local wrong = 0
  for _, thread in ipairs(threads) do
    wrong = wrong + thread:get("wrong")
  end
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p99_ms": %.4f, "wrong": %d, "errors": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    wrong, errors.connect + errors.read + errors.write + errors.timeout))
end
