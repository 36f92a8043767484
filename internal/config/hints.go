package config

import (
	"slices"
	"strings"
)

// hints are for names that users of other proxies may try, separated by spaces.
var hints = []struct{ names, hint string }{
	{"PORT", "the port for requests is in RETRYPROXY_LISTEN=:8080, the upstream's in RETRYPROXY_UPSTREAM=http://localhost:3000"},
	{"LISTEN_PORT", "the port is part of RETRYPROXY_LISTEN=:8080"},
	{"LISTEN_ADDR ADDRESS ADDR BIND", "the address for requests is RETRYPROXY_LISTEN=:8080"},
	{"METRICS METRICS_PORT METRICS_LISTEN METRICS_ADDR", "/metrics is served by the admin listener, RETRYPROXY_ADMIN_LISTEN=:9797"},
	{"ADMIN_PORT", "the port is part of RETRYPROXY_ADMIN_LISTEN=:9797"},
	{"TARGET TARGET_URL BACKEND BACKEND_URL UPSTREAM_URL URL", "requests are sent to RETRYPROXY_UPSTREAM=http://localhost:3000"},
	{"BACKENDS UPSTREAMS", "several upstreams are a list: RETRYPROXY_UPSTREAM=http://a:3000,http://b:3000"},
	{"UPSTREAM_SERVER_NAME", "a name in RETRYPROXY_UPSTREAM_HOST is the server name too, else the upstream's host is"},
	{"TIMEOUT UPSTREAM_TIMEOUT READ_TIMEOUT", "did you mean RETRYPROXY_REQUEST_TIMEOUT (a request with all its retries) or RETRYPROXY_ATTEMPT_TIMEOUT (one attempt)?"},
	{"TOTAL_TIMEOUT", "did you mean RETRYPROXY_REQUEST_TIMEOUT (a request with all its retries)?"},
	{"PER_TRY_TIMEOUT", "did you mean RETRYPROXY_ATTEMPT_TIMEOUT (one attempt)?"},
	{"CONNECT_TIMEOUT DIAL_TIMEOUT", "a connection has 3s, or RETRYPROXY_ATTEMPT_TIMEOUT if that is shorter"},
	{"READ_HEADER_TIMEOUT", "a client has 10s for the headers of a request"},
	{"IDLE_TIMEOUT CLIENT_IDLE_TIMEOUT", "an idle client is kept for 70m, longer than by every load balancer in front"},
	{"TUNNEL_IDLE_TIMEOUT", "a WebSocket or another upgraded connection may be silent for 1h"},
	{"WRITE_TIMEOUT", "a client that reads nothing of its response for 1m is disconnected"},
	{"MAX_HEADER_BYTES", "headers have at most 64KiB"},
	{"MAX_HEADERS", "a request or response has at most 100 header lines"},
	{"MAX_BODY_SIZE MAX_BODY_BYTES", "bodies stream, so their size costs nothing here; the application limits it"},
	{"MAX_CONNECTIONS", "the number of connections follows from the descriptor limit (ulimit -n) and the memory limit"},
	{"MAX_CONCURRENT_STREAMS", "an HTTP/2 client may have 128 requests in flight on a connection"},
	{"RETRIES NUM_RETRIES RETRY_COUNT RETRY", "did you mean RETRYPROXY_MAX_RETRIES (retries after the first attempt)?"},
	{"MAX_ATTEMPTS ATTEMPTS", "did you mean RETRYPROXY_MAX_RETRIES (retries after the first attempt, so one less)?"},
	{"RETRY_STATUS RETRY_CODES", "did you mean RETRYPROXY_RETRY_ON=5xx,429,connect-failure,reset?"},
	{"RETRY_DELAY RETRY_INTERVAL", "did you mean RETRYPROXY_BACKOFF_BASE=100ms?"},
	{"BACKOFF_FACTOR", "it is an option: RETRYPROXY_BACKOFF=full-jitter:factor=2"},
	{"BACKOFF_JITTER", "it is an option: RETRYPROXY_BACKOFF=normal:jitter=0.1"},
	{"BACKOFF_SPREAD", "it is an option: RETRYPROXY_BACKOFF=additive:spread=1s"},
	{"BACKOFF_RATIO", "it is an option: RETRYPROXY_BACKOFF=ratio:ratio=0.1"},
	{"BACKOFF_SLOTS", "it is an option: RETRYPROXY_BACKOFF=slots:slots=10"},
	{"BACKOFF_STAY", "it is an option: RETRYPROXY_BACKOFF=slots:stay=true"},
	{"BACKOFF_EXTRA", "it is an option of each strategy: RETRYPROXY_BACKOFF=fixed:extra=500ms"},
	{"RETRY_POST RETRY_UNSAFE", "did you mean RETRYPROXY_RETRY_METHODS=any?"},
	{"RETRY_PERCENT", "POST /retry-percent of the admin listener changes it in a running process"},
	{"CIRCUIT_BREAKER", "it is on by default; RETRYPROXY_BREAKER=queue, fail-fast or off says what happens to requests while it is open"},
	{"CLIENT_THROTTLING", "it is gone: the circuit breaker (RETRYPROXY_BREAKER), RETRYPROXY_CONCURRENCY_LIMIT and the retry budget protect the upstream"},
	{"FAULT_INJECTION", "it is gone: let the upstream fail, such as nginx with split_clients (docs/how-to/try-out.md)"},
	{"MAX_CONCURRENCY CONCURRENCY MAX_CONCURRENT MAX_REQUESTS", "did you mean RETRYPROXY_CONCURRENCY_LIMIT=100 (attempts in flight to the upstream)?"},
	{"RATELIMIT RATE RPS RATE_LIMIT_RPS RATE_LIMIT_REQUESTS RATE_LIMIT_PER_SECOND", "did you mean RETRYPROXY_RATE_LIMIT=100/s?"},
	{"RATE_LIMIT_BURST", "attempts are spread evenly; RETRYPROXY_RATE_LIMIT_WAIT says how long requests wait for their turn"},
	{"HEALTH_CHECK HEALTHCHECK", "did you mean RETRYPROXY_HEALTH_PATH=/healthz?"},
	{"HEALTH_INTERVAL", "health checks are 10s apart"},
	{"EJECT_AFTER", "an endpoint is ejected after 5 failures in a row; RETRYPROXY_BREAKER=off turns ejection off"},
	{"VIA", "no Via header is added, because some servers stop compressing when they see it"},
	{"LOG LOG_LEVEL DEBUG", "requests are logged with RETRYPROXY_ACCESS_LOG=true; there is no level to choose"},
	{"LOG_FORMAT", "lines are JSON, and columns on a terminal"},
	{"PPROF", "profiles are always served, to loopback and with the token of RETRYPROXY_ADMIN_TOKEN_FILE"},
	{"REDIS REDIS_URL", "did you mean RETRYPROXY_SHARED=redis://host?"},
	{"SHARED_SCOPE", "it is an option: RETRYPROXY_SHARED=redis://host?scope=NAME"},
	{"SHARED_PASSWORD_FILE", "it is an option: RETRYPROXY_SHARED=redis://host?password_file=FILE"},
	{"SHARED_CA", "it is an option: RETRYPROXY_SHARED=rediss://host?ca=FILE"},
	{"SHARED_CERT SHARED_KEY", "it is an option: RETRYPROXY_SHARED=rediss://host?cert=FILE, with the key in the same file or beside it"},
	{"CONFIG", "did you mean RETRYPROXY_CONFIG_FILE?"},
}

// hintFor returns the hint for a name without prefix, or "".
func hintFor(key string) string {
	for _, h := range hints {
		if slices.Contains(strings.Fields(h.names), key) {
			return h.hint
		}
	}
	return ""
}
