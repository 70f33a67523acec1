-- Makes wrk send each request with another credential, the same for every server, and print its summary as JSON.
-- Arguments: the file of credentials (one a line), the header for them, the method, the body, further header lines between bars.
local started, own, requests, i, n = 0, 0, {}, 0, 0
function setup(thread)
  thread:set("own", started)
  started = started + 1
end
function init(args)
  local body = args[4] ~= "" and args[4] or nil
  for line in io.lines(args[1]) do
    local headers = { ["Accept"] = "application/json" }
    if args[2] ~= "" then headers[args[2]] = line end
    for name, value in args[5]:gmatch("([^:|]+): ([^|]+)") do headers[name] = value end
    if body then headers["Content-Type"] = "application/json" end
    n = n + 1
    requests[n] = wrk.format(args[3], wrk.path, headers, body)
  end
  i = math.floor(n / 2) * own
end
function request()
  i = i % n + 1
  return requests[i]
end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\nRESULT {"requests":%d,"micros":%d,"p50":%d,"p99":%d,"broken":%d,"refused":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.timeout, e.status))
end
