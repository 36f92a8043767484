package config

// Texts that several hints share.
const (
	upstreamHint    = "requests are sent to RETRYPROXY_UPSTREAM=http://localhost:3000"
	listenHint      = "the address for requests is RETRYPROXY_LISTEN=:8080"
	adminHint       = "/metrics is served by the admin listener, RETRYPROXY_ADMIN_LISTEN=:9797"
	retriesHint     = "did you mean RETRYPROXY_MAX_RETRIES (retries after the first attempt)?"
	attemptsHint    = "did you mean RETRYPROXY_MAX_RETRIES (retries after the first attempt, so one less)?"
	timeoutHint     = "did you mean RETRYPROXY_REQUEST_TIMEOUT (a request with all its retries) or RETRYPROXY_ATTEMPT_TIMEOUT (one attempt)?"
	concurrencyHint = "did you mean RETRYPROXY_CONCURRENCY_LIMIT=100 (attempts in flight to the upstream)?"
	breakerHint     = "it is on by default; RETRYPROXY_BREAKER=queue, fail-fast or off says what happens to requests while it is open"
	rateHint        = "did you mean RETRYPROXY_RATE_LIMIT=100/s?"
	logHint         = "requests are logged with RETRYPROXY_ACCESS_LOG=true; there is no level to choose"
)

// hints maps names that users of other proxies may try.
var hints = map[string]string{
	"PORT":                  "the port for requests is in RETRYPROXY_LISTEN=:8080, the upstream's in RETRYPROXY_UPSTREAM=http://localhost:3000",
	"LISTEN_PORT":           "the port is part of RETRYPROXY_LISTEN=:8080",
	"LISTEN_ADDR":           listenHint,
	"ADDRESS":               listenHint,
	"ADDR":                  listenHint,
	"BIND":                  listenHint,
	"METRICS_PORT":          adminHint,
	"METRICS_LISTEN":        adminHint,
	"METRICS_ADDR":          adminHint,
	"METRICS":               adminHint,
	"ADMIN_PORT":            "the port is part of RETRYPROXY_ADMIN_LISTEN=:9797",
	"TARGET":                upstreamHint,
	"TARGET_URL":            upstreamHint,
	"BACKEND":               upstreamHint,
	"BACKEND_URL":           upstreamHint,
	"BACKENDS":              "several upstreams are a list: RETRYPROXY_UPSTREAM=http://a:3000,http://b:3000",
	"UPSTREAMS":             "several upstreams are a list: RETRYPROXY_UPSTREAM=http://a:3000,http://b:3000",
	"UPSTREAM_URL":          upstreamHint,
	"URL":                   upstreamHint,
	"TIMEOUT":               timeoutHint,
	"UPSTREAM_TIMEOUT":      timeoutHint,
	"READ_TIMEOUT":          timeoutHint,
	"TOTAL_TIMEOUT":         "did you mean RETRYPROXY_REQUEST_TIMEOUT (a request with all its retries)?",
	"PER_TRY_TIMEOUT":       "did you mean RETRYPROXY_ATTEMPT_TIMEOUT (one attempt)?",
	"CONNECT_TIMEOUT":       "a connection has 3s, or RETRYPROXY_ATTEMPT_TIMEOUT if that is shorter",
	"RETRIES":               retriesHint,
	"NUM_RETRIES":           retriesHint,
	"RETRY_COUNT":           retriesHint,
	"RETRY":                 retriesHint,
	"MAX_ATTEMPTS":          attemptsHint,
	"ATTEMPTS":              attemptsHint,
	"RETRY_STATUS":          "did you mean RETRYPROXY_RETRY_ON=5xx,429,connect-failure,reset?",
	"RETRY_CODES":           "did you mean RETRYPROXY_RETRY_ON=5xx,429,connect-failure,reset?",
	"RETRY_DELAY":           "did you mean RETRYPROXY_BACKOFF_BASE=100ms?",
	"RETRY_INTERVAL":        "did you mean RETRYPROXY_BACKOFF_BASE=100ms?",
	"RETRY_POST":            "did you mean RETRYPROXY_RETRY_METHODS=any?",
	"CIRCUIT_BREAKER":       breakerHint,
	"MAX_CONCURRENCY":       concurrencyHint,
	"CONCURRENCY":           concurrencyHint,
	"MAX_CONCURRENT":        concurrencyHint,
	"MAX_REQUESTS":          concurrencyHint,
	"RATELIMIT":             rateHint,
	"RATE":                  rateHint,
	"RPS":                   rateHint,
	"RATE_LIMIT_RPS":        rateHint,
	"RATE_LIMIT_REQUESTS":   rateHint,
	"RATE_LIMIT_PER_SECOND": rateHint,
	"RATE_LIMIT_BURST":      "attempts are spread evenly; RETRYPROXY_RATE_LIMIT_WAIT says how long requests wait for their turn",
	"HEALTH_CHECK":          "did you mean RETRYPROXY_HEALTH_PATH=/healthz?",
	"HEALTHCHECK":           "did you mean RETRYPROXY_HEALTH_PATH=/healthz?",
	"LOG":                   logHint,
	"DEBUG":                 logHint,
	"REDIS_URL":             "did you mean RETRYPROXY_SHARED=redis://host?",
	"REDIS":                 "did you mean RETRYPROXY_SHARED=redis://host?",
	"CONFIG":                "did you mean RETRYPROXY_CONFIG_FILE?",
}

// constants maps names of settings in other proxies or earlier versions that are constants here, or
// follow from other settings.
var constants = map[string]string{
	"TLS_KEY":                "the key is in the file of RETRYPROXY_TLS_CERT, or beside it in the file that ends in .key (tls.crt, tls.key)",
	"UPSTREAM_KEY":           "the key is in the file of RETRYPROXY_UPSTREAM_CERT, or beside it in the file that ends in .key (tls.crt, tls.key)",
	"UPSTREAM_SERVER_NAME":   "a name in RETRYPROXY_UPSTREAM_HOST is the server name too, else the upstream's host is",
	"SHARED_SCOPE":           "it is an option of RETRYPROXY_SHARED=redis://host?scope=NAME",
	"SHARED_PASSWORD_FILE":   "it is an option of RETRYPROXY_SHARED=redis://host?password_file=FILE",
	"SHARED_CA":              "it is an option of RETRYPROXY_SHARED=rediss://host?ca=FILE",
	"SHARED_CERT":            "it is an option of RETRYPROXY_SHARED=rediss://host?cert=FILE",
	"SHARED_KEY":             "the key is in the file of RETRYPROXY_SHARED=rediss://host?cert=FILE, or beside it in the file that ends in .key",
	"STRICT":                 "unknown names always stop the start",
	"FORWARD_PROXY":          "an outbound retryproxy is also a forward proxy; RETRYPROXY_POSITION=outbound if that is not found out",
	"MAX_CONNECTIONS":        "the number of connections follows from the descriptor limit (ulimit -n) and the memory limit",
	"MAX_CONCURRENT_STREAMS": "it is 128; GODEBUG=http2server=0 turns HTTP/2 with clients off",
	"MAX_HEADER_BYTES":       "it is 64KiB",
	"MAX_HEADERS":            "it is 100",
	"READ_HEADER_TIMEOUT":    "it is 10s",
	"CLIENT_IDLE_TIMEOUT":    "it is 70m, longer than that of every load balancer in front",
	"IDLE_TIMEOUT":           "an idle client is kept for 70m, longer than by every load balancer in front",
	"WRITE_TIMEOUT":          "it is 1m",
	"TUNNEL_IDLE_TIMEOUT":    "it is 1h",
	"MIN_BODY_RATE":          "it is 256 bytes a second, after the first 10 seconds",
	"MAX_BODY_BYTES":         "bodies stream, so their size costs nothing here; the application limits it",
	"MAX_BODY_SIZE":          "bodies stream, so their size costs nothing here; the application limits it",
	"RETRY_PERCENT":          "'retryproxy retry-percent' changes it in a running process",
	"LOG_LEVEL":              logHint,
	"LOG_FORMAT":             "lines are JSON, and columns on a terminal",
	"GAVE_UP_LOG_PER_MINUTE": "it is 10 for each route; RETRYPROXY_ACCESS_LOG=true logs every request",
	"PPROF":                  "profiles are always served, to loopback and with the token of RETRYPROXY_ADMIN_TOKEN_FILE",
	"DIAL_TIMEOUT":           "it is 3s, or RETRYPROXY_ATTEMPT_TIMEOUT if that is shorter",
	"EJECT_AFTER":            "it is 5; RETRYPROXY_BREAKER=off turns ejection off",
	"EJECT_FOR":              "it is 30s for the first time, and n times as long for the nth",
	"HEALTH_INTERVAL":        "it is 10s",
	"PROBE_PATH":             "RETRYPROXY_HEALTH_PATH is for probes and for health checks",
	"FORWARDED":              "X-Forwarded-* headers are sent",
	"VIA":                    "no Via header is added, because some servers stop compressing when they see it",
	"IDEMPOTENCY_KEY":        "a request with an Idempotency-Key may always be retried; RETRYPROXY_RETRY_METHODS=any-with-key adds one to the others",
	"RESPONSE_HEADERS":       "RETRYPROXY_RESPONSE_HEADERS_REMOVE=X-Retryproxy-Attempts,X-Retryproxy-Reason removes ours",
	"RETRY_WINDOW":           "RETRYPROXY_REQUEST_TIMEOUT bounds a request with all its retries",
	"RETRY_UNSAFE":           "RETRYPROXY_RETRY_METHODS=any retries every method",
	"QUEUE_ORDER":            "the newest request, which has the most time left, is served first",
	"BREAKER_ON":             "502, 503, 504, failed connections and silence count",
	"BREAKER_BACKOFF":        "probes begin after 25ms to 150ms when connections are refused, after 100ms to 500ms otherwise",
	"CLIENT_DEADLINES":       "all headers in which clients send a deadline are read",
	"RESPONSE_BUFFER_BYTES":  "it is 64KiB",
}
